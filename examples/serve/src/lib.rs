//! A trained model as an HTTP service: `POST /predict` and `GET /health`.
//!
//! The service is one [`Predictor`] that all requests share. A request is checked and computed on a thread that may
//! block. At most [`Limits::computing`] compute at once, [`Limits::waiting`] more wait, and others get a 503.

mod request;

pub use request::{Answer, Request};

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use halfgnn::predict::{PredictError, Predictor};
use serde::Serialize;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much the service takes on.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request.
    pub body: usize,
    /// Requests that compute at once.
    pub computing: usize,
    /// Requests that wait for those.
    pub waiting: usize,
}

impl Default for Limits {
    /// Bodies of 8 MiB, a request for each core, and 256 that wait.
    fn default() -> Self {
        Self {
            body: 8 << 20,
            computing: std::thread::available_parallelism().map_or(1, usize::from),
            waiting: 256,
        }
    }
}

/// What requests share.
#[derive(Debug)]
struct Service {
    predictor: Predictor,
    /// A permit for each request that computes or waits.
    admitted: Arc<Semaphore>,
    /// Their number.
    places: usize,
    /// A permit for each that computes.
    computing: Arc<Semaphore>,
}

/// Why a request has no answer.
#[derive(Debug)]
enum Refusal {
    /// The client's mistake, in a line.
    Request(StatusCode, String),
    /// Too many others wait.
    Busy,
    /// The service's own failure.
    Failed(String),
}

impl From<PredictError> for Refusal {
    fn from(error: PredictError) -> Self {
        match error {
            PredictError::Input(reason) => Self::Request(StatusCode::BAD_REQUEST, reason),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Reason {
            error: String,
        }
        let reason = |error: String| Json(Reason { error });
        match self {
            // The rest of its body is not read, so nothing can follow on the connection.
            Self::Request(status @ StatusCode::PAYLOAD_TOO_LARGE, error) => {
                (status, [(CONNECTION, "close")], reason(error)).into_response()
            }
            Self::Request(status, error) => (status, reason(error)).into_response(),
            Self::Busy => {
                let error = reason("too many requests wait; try again later".into());
                let later = [(RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, later, error).into_response()
            }
            Self::Failed(error) => {
                eprintln!("halfgnn-serve: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, reason(error)).into_response()
            }
        }
    }
}

/// The routes of a service of `predictor`.
pub fn app(predictor: Predictor, limits: Limits) -> Router {
    let permits = |count: usize| count.clamp(1, Semaphore::MAX_PERMITS);
    let computing = permits(limits.computing);
    let places = permits(computing.saturating_add(limits.waiting));
    let service = Service {
        predictor,
        admitted: Arc::new(Semaphore::new(places)),
        places,
        computing: Arc::new(Semaphore::new(computing)),
    };
    Router::new()
        .route("/health", get(health))
        .route("/predict", post(predict))
        .layer(DefaultBodyLimit::max(limits.body))
        .with_state(Arc::new(service))
}

/// Serves until `stop` ends, and then answers the requests that are there.
///
/// # Errors
/// Those of the listener.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, app)
        .with_graceful_shutdown(stop)
        .await
}

/// What is served.
#[derive(Serialize)]
struct Health {
    status: &'static str,
    device: String,
    model: String,
    precision: String,
    predicts: &'static str,
    /// Features of each vertex that a graph must have.
    features: usize,
    /// Vertices, or graphs, of the dataset; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<usize>,
    /// Requests that compute or wait.
    requests: usize,
}

async fn health(State(service): State<Arc<Service>>) -> Json<Health> {
    let predictor = &service.predictor;
    Json(Health {
        status: "ok",
        device: predictor.device(),
        model: predictor.model().convolution.name().to_owned(),
        precision: predictor.precision().to_string(),
        predicts: predictor.kind().name(),
        features: predictor.features(),
        rows: predictor.rows(),
        requests: service.places - service.admitted.available_permits(),
    })
}

async fn predict(
    State(service): State<Arc<Service>>,
    request: Result<Json<Request>, JsonRejection>,
) -> Result<Json<Answer>, Refusal> {
    let Json(request) =
        request.map_err(|rejection| Refusal::Request(rejection.status(), rejection.body_text()))?;
    let permits = admit(&service.admitted, &service.computing).await?;
    let compute = move || {
        let answer = request.answer(&service.predictor);
        // Also where the client has gone meanwhile, a request computes until here.
        drop(permits);
        answer
    };
    match tokio::task::spawn_blocking(compute).await {
        Ok(answer) => Ok(Json(answer?)),
        Err(error) => Err(Refusal::Failed(format!("a request failed: {error}"))),
    }
}

/// Waits until a request may compute, unless too many do.
async fn admit(
    admitted: &Arc<Semaphore>,
    computing: &Arc<Semaphore>,
) -> Result<[OwnedSemaphorePermit; 2], Refusal> {
    let admitted = Arc::clone(admitted).try_acquire_owned();
    let admitted = admitted.map_err(|_| Refusal::Busy)?;
    let computing = Arc::clone(computing).acquire_owned().await;
    let computing = computing.map_err(|_| Refusal::Busy)?;
    Ok([admitted, computing])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_requests_are_refused_at_once() {
        let permits = |count| Arc::new(Semaphore::new(count));
        let (none, one) = (permits(0), permits(1));
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let refused = runtime.expect("a runtime").block_on(admit(&none, &one));
        let response = refused.expect_err("it is refused").into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }

    #[test]
    fn mistakes_of_clients_are_4xx_and_failures_are_500() {
        let of = |error: PredictError| Refusal::from(error).into_response().status();
        assert_eq!(
            of(PredictError::Input("no".into())),
            StatusCode::BAD_REQUEST
        );
        let failed = PredictError::Device(halfgnn::Error::Contract("old kernels".into()));
        assert_eq!(of(failed), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
