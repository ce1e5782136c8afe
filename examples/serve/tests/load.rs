//! The service under load: many clients at once, whose answers are the library's, among requests that are wrong.

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::{Dataset, Features, Synthetic, UploadFeatures};
use halfgnn::device::Choice;
use halfgnn::graph::generate::BlockModel;
use halfgnn::nn::{ModelConfig, Network, Propagation};
use halfgnn::predict::{NewGraph, Predictions, Predictor};
use halfgnn::tensor::Precision;
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{Checkpoint, Loss, Objective, TrainConfig, Trainer};
use halfgnn_serve::{Limits, app, serve};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const VERTICES: u64 = 400;
const FEATURES: usize = 12;
/// Bytes of a request at most.
const BODY: usize = 64 << 10;

fn dataset() -> Dataset {
    let graph = BlockModel {
        vertices: VERTICES,
        classes: 4,
        hubs: 0,
        hub_degree: 0,
        ..BlockModel::default()
    };
    let of = Synthetic {
        graph,
        features: FEATURES,
        scale: 1.0,
        train_per_class: 20,
        val_per_class: 20,
        ..Synthetic::default()
    };
    of.generate(3).expect("a dataset")
}

/// A GCN after a few epochs in half.
fn trained(data: &Dataset) -> Checkpoint {
    let backend = &Cpu::new();
    let model = ModelConfig::gcn(data.feature_len(), data.outputs);
    let graph = model.prepare(&data.graph).expect("a graph");
    let objective = Objective::<_, f16>::new(
        backend,
        Propagation::new(backend, &graph, model.norm()).expect("memory"),
        data.upload_features(backend).expect("memory"),
        data.class_labels().expect("classes"),
        data.outputs,
        [&data.train, &data.val, &data.test],
    );
    let objective = objective.expect("a task");
    let train = TrainConfig {
        epochs: 5,
        ..TrainConfig::new(Precision::Half)
    };
    let network = Network::new(backend, &model, 0).expect("a model");
    let mut trainer = Trainer::new(backend, &objective, network, train).expect("a trainer");
    trainer.run(|_| ControlFlow::Continue(())).expect("epochs");
    Checkpoint {
        task: TaskIdentity::of(data),
        model,
        precision: Precision::Half,
        train,
        feature_divisors: None,
        loss: Loss::CrossEntropy {
            class_weights: None,
        },
        inductive: false,
        links: None,
        sampling: None,
        snapshot: trainer.snapshot().expect("a snapshot"),
    }
}

fn predictor(data: &Dataset) -> Predictor {
    let predictor = Predictor::new(trained(data), Choice::Cpu).expect("a model");
    predictor.with_dataset(data.clone()).expect("its dataset")
}

/// A service on a thread of its own.
struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(predictor: Predictor, limits: Limits) -> Self {
        let (started, address) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                let address = listener.local_addr().expect("an address");
                started.send(address).expect("the test waits");
                let stop = async { drop(stopped.await) };
                let served = serve(listener, app(predictor, limits), stop).await;
                served.expect("it serves");
            });
        });
        Self {
            address: address.recv().expect("it listens"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Asks it to stop, and waits until it has.
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends by itself");
        }
    }
}

/// A client with connections of its own.
struct Client {
    agent: ureq::Agent,
    address: SocketAddr,
}

impl Client {
    fn of(service: &Running) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(60)))
            // A busy machine answers late, and the body would be sent meanwhile.
            .timeout_await_100(Some(Duration::from_secs(60)))
            .build();
        Self {
            agent: config.into(),
            address: service.address,
        }
    }

    /// The status of an answer, and its JSON.
    fn post(&self, body: &str) -> (u16, Value) {
        let request = self.agent.post(format!("http://{}/predict", self.address));
        let mut request = request.header("content-type", "application/json");
        if body.len() > BODY {
            // The service refuses it by its length, and would close the connection while it is sent.
            request = request.header("expect", "100-continue");
        }
        read(request.send(body))
    }

    fn health(&self) -> (u16, Value) {
        read(
            self.agent
                .get(format!("http://{}/health", self.address))
                .call(),
        )
    }
}

fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, Value) {
    let mut response = response.expect("an answer");
    let text = response.body_mut().read_to_string().expect("a text");
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (response.status().as_u16(), value)
}

/// A request with a ring of the given number of vertices, and the same for the library.
fn ring(size: u32) -> (Value, NewGraph<'static>) {
    let edges: Vec<[u32; 2]> = (0..size)
        .flat_map(|vertex| [[vertex, (vertex + 1) % size], [(vertex + 1) % size, vertex]])
        .collect();
    let value = |at: usize| ((at * 13 + size as usize) % 17) as f32 / 16.0;
    let values: Vec<f32> = (0..size as usize * FEATURES).map(value).collect();
    let rows: Vec<&[f32]> = values.chunks(FEATURES).collect();
    let request = json!({ "graph": { "features": rows, "edges": edges } });
    let features = Features::dense(FEATURES, values.clone()).expect("rows");
    let graph = NewGraph::from_edges(features, &edges).expect("ids are in range");
    (request, graph)
}

/// That an answer has the classes and the probabilities of the library, to the bit.
#[track_caller]
fn assert_is(found: &Value, expected: &Predictions, vertices: Option<&[u32]>) {
    assert_eq!(found["predicts"], "classes");
    let rows = found["predictions"].as_array().expect("predictions");
    let classes = expected.classes().expect("classes");
    let probabilities = expected.probabilities().expect("probabilities");
    assert_eq!(rows.len(), classes.len());
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(row["class"], classes[at]);
        let found = row["probabilities"].as_array().expect("probabilities");
        let found: Vec<f32> = found
            .iter()
            .map(|p| p.as_f64().expect("a number") as f32)
            .collect();
        let columns = expected.columns();
        assert_eq!(found, probabilities[at * columns..][..columns]);
        match vertices {
            Some(vertices) => assert_eq!(row["vertex"], vertices[at]),
            None => assert!(row.get("vertex").is_none()),
        }
    }
}

/// Requests that are wrong, the status of each, and a word of the reason.
fn wrong() -> Vec<(String, u16, &'static str)> {
    let narrow = json!({ "graph": { "features": [[1.0, 2.0]], "edges": [] } });
    let (mut far, _) = ring(3);
    far["graph"]["edges"][0] = json!([0, 3]);
    let (mut twice, _) = ring(3);
    twice["vertices"] = json!([0]);
    let (mut weighted, _) = ring(3);
    weighted["graph"]["edge_weights"] = json!([1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    let (mut starts, _) = ring(4);
    starts["graph"]["starts"] = json!([0, 4]);
    let padded = format!("{{\"vertices\": [{}0]}}", "0, ".repeat(BODY));
    vec![
        (
            json!({ "vertices": [VERTICES] }).to_string(),
            400,
            "vertex 400 is not there",
        ),
        (
            json!({ "vertices": ["eve"] }).to_string(),
            400,
            "no vertex of the dataset has the id",
        ),
        (
            json!({ "pairs": [[0, 1]] }).to_string(),
            400,
            "predicts classes and no links",
        ),
        (
            narrow.to_string(),
            400,
            "features[0] has 2 numbers, and there should be 12",
        ),
        (far.to_string(), 400, "edges[0] is from 0 to 3"),
        (twice.to_string(), 400, "a request has `vertices`"),
        (
            weighted.to_string(),
            400,
            "trained on edges without weights",
        ),
        (
            starts.to_string(),
            400,
            "it is 1 graphs, and the model predicts vertices",
        ),
        (json!({}).to_string(), 400, "a request has `vertices`"),
        (
            json!({ "vertex": [0] }).to_string(),
            422,
            "unknown field `vertex`",
        ),
        (json!({ "vertices": [-1] }).to_string(), 422, "vertices"),
        ("{\"vertices\": [0".to_owned(), 400, "JSON"),
        (padded, 413, "length limit"),
    ]
}

#[test]
fn many_clients_get_answers_of_the_library_among_wrong_requests() {
    let data = dataset();
    let library = predictor(&data);
    let limits = Limits {
        body: BODY,
        waiting: 1000,
        ..Limits::default()
    };
    let mut service = Running::start(predictor(&data), limits);
    let rings: Vec<(String, Predictions)> = (3..35)
        .map(|size| {
            let (request, graph) = ring(size);
            (
                request.to_string(),
                library.predict_graph(&graph).expect("a graph"),
            )
        })
        .collect();
    let wrong = wrong();
    thread::scope(|scope| {
        for client in 0..16_usize {
            let (library, service, rings, wrong) = (&library, &service, &rings, &wrong);
            scope.spawn(move || {
                let at = Client::of(service);
                for call in 0..200 {
                    let number = client * 200 + call;
                    match number % 4 {
                        0 => {
                            let vertices = [number as u32 % 400, 399, number as u32 % 7];
                            let body = json!({ "vertices": vertices }).to_string();
                            let (status, found) = at.post(&body);
                            assert_eq!(status, 200, "{found}");
                            let expected = library.predict(&vertices).expect("vertices");
                            assert_is(&found, &expected, Some(&vertices));
                        }
                        1 | 2 => {
                            let (body, expected) = &rings[number * 7 % rings.len()];
                            let (status, found) = at.post(body);
                            assert_eq!(status, 200, "{found}");
                            assert_is(&found, expected, None);
                        }
                        _ => {
                            let (body, status, word) = &wrong[number / 4 % wrong.len()];
                            let (found, reason) = at.post(body);
                            assert_eq!(found, *status, "{reason} of {word}");
                            let reason = reason["error"].as_str().expect("a reason");
                            assert!(reason.contains(word), "{word:?} is not in: {reason}");
                            assert!(!reason.contains('\n'), "{reason}");
                        }
                    }
                }
                let (status, health) = at.health();
                assert_eq!((status, &health["status"]), (200, &json!("ok")));
                assert_eq!(
                    (&health["rows"], &health["features"]),
                    (&json!(400), &json!(12))
                );
            });
        }
    });
    service.stop();
}

/// One that computes when the service is asked to stop gets its answer, and later ones no connection.
#[test]
fn a_service_that_stops_answers_what_it_has() {
    let data = dataset();
    let (request, graph) = ring(40_000);
    let expected = predictor(&data).predict_graph(&graph).expect("a graph");
    let body = request.to_string();
    let limits = Limits {
        body: body.len(),
        ..Limits::default()
    };
    let mut service = Running::start(predictor(&data), limits);
    let (client, others) = (Client::of(&service), Client::of(&service));
    thread::scope(|scope| {
        let asked = scope.spawn(move || client.post(&body));
        while others.health().1["requests"] == 0 {
            assert!(!asked.is_finished(), "it computes before it is answered");
        }
        service.stop();
        let (status, found) = asked.join().expect("an answer");
        assert_eq!(status, 200, "{found}");
        assert_is(&found, &expected, None);
    });
    assert!(std::net::TcpStream::connect(service.address).is_err());
}

/// A program that does not outlive a test that fails.
#[cfg(unix)]
struct Child(std::process::Child);

#[cfg(unix)]
impl Drop for Child {
    fn drop(&mut self) {
        // One that has ended is not there any more.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program: from a file to an answer, and an end at SIGTERM.
#[cfg(unix)]
#[test]
fn the_program_serves_a_file_until_it_is_terminated() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.safetensors");
    trained(&dataset()).save(&file).expect("it is written");
    let child = Command::new(env!("CARGO_BIN_EXE_halfgnn-serve"))
        .args(["--device", "cpu", "--listen", "127.0.0.1:0", "--model"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Child(child.expect("it starts"));
    let mut lines = BufReader::new(child.0.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("a line").expect("a text");
    let (_, address) = first
        .split_once("listening at http://")
        .expect("an address");
    let service = Running {
        address: address.parse().expect("an address"),
        stop: None,
        thread: None,
    };
    let client = Client::of(&service);
    let (request, graph) = ring(5);
    let expected = predictor(&dataset())
        .predict_graph(&graph)
        .expect("a graph");
    let (status, found) = client.post(&request.to_string());
    assert_eq!(status, 200, "{found}");
    assert_is(&found, &expected, None);
    let (status, reason) = client.post("{\"vertices\": [0]}");
    assert_eq!(status, 400);
    assert!(
        reason["error"]
            .as_str()
            .expect("a reason")
            .contains("opened without a dataset")
    );
    let signal = Command::new("kill").arg(child.0.id().to_string()).status();
    assert!(signal.expect("a signal").success());
    assert_eq!(lines.next().expect("a line").expect("a text"), "stopped");
    assert!(child.0.wait().expect("it ends").success());
}
