//! `halfgnn-serve --model FILE`: a trained model as an HTTP service.

use clap::{Parser, ValueEnum};
use halfgnn::data::Dataset;
use halfgnn::device::Choice;
use halfgnn::predict::Predictor;
use halfgnn_serve::{Limits, app, serve};
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Serves the predictions of a trained model over HTTP: POST /predict and GET /health.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A checkpoint that `halfgnn train --save` wrote
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The dataset whose vertices are asked for by number or id; without one, requests bring graphs
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Where to compute; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    device: DeviceName,
    /// The address to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Bytes that a request has at most
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body)]
    body_limit: usize,
    /// Requests that compute at once
    #[arg(long, value_name = "N", default_value_t = Limits::default().computing)]
    computing: usize,
    /// Requests that wait for those; more get a 503
    #[arg(long, value_name = "N", default_value_t = Limits::default().waiting)]
    waiting: usize,
}

/// [`Choice`], as it is typed.
#[derive(Clone, Copy, ValueEnum)]
enum DeviceName {
    Auto,
    Cpu,
    Cuda,
    Emulator,
}

impl From<DeviceName> for Choice {
    fn from(name: DeviceName) -> Self {
        match name {
            DeviceName::Auto => Self::Auto,
            DeviceName::Cpu => Self::Cpu,
            DeviceName::Cuda => Self::Cuda,
            DeviceName::Emulator => Self::Emulator,
        }
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halfgnn-serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let mut predictor = Predictor::open(&arguments.model, arguments.device.into())?;
    if let Some(path) = &arguments.dataset {
        predictor = predictor.with_dataset(Dataset::open(path)?)?;
    }
    let limits = Limits {
        body: arguments.body_limit,
        computing: arguments.computing,
        waiting: arguments.waiting,
    };
    let stop = Arc::new(Notify::new());
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stop.notify_one())?;
    let (device, kind) = (predictor.device(), predictor.kind());
    let app = app(predictor, limits);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen).await;
        let listener =
            listener.map_err(|error| format!("cannot listen at {}: {error}", arguments.listen))?;
        let address = listener.local_addr()?;
        println!("{kind} on {device}, listening at http://{address}");
        serve(listener, app, async move { stopped.notified().await }).await?;
        println!("stopped");
        Ok(())
    })
}
