//! The arguments of `tidegate predict`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{ModelArgs, UploadArgs};

/// Run one prediction, with a local model or on a running server.
///
/// With a model folder or a script, the command loads the model, runs the prediction and stops the
/// model. With the URL of a running server, it sends the prediction there.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Model folder, script with a Runpod handler, or URL of a server
    pub(crate) target: String,
    /// Input as `name=value`, or `name=@file` for the content of a file. Numbers, lists and objects
    /// are written as JSON
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(crate) inputs: Vec<String>,
    /// All inputs as one JSON object; `@file` reads a file, `@-` standard input
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) json: Option<String>,
    /// Runpod handler script: the job as `{"input": {…}}` [default: test_input.json next to the
    /// script, if there is no other input]
    #[arg(long, alias = "test_input", value_name = "JSON", conflicts_with_all = ["inputs", "json"])]
    pub(crate) test_input: Option<String>,
    /// Write the output to this path; several output files become a folder
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// File that contains the token for the server; TIDEGATE_API_TOKEN contains the token itself
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Run the training function instead
    #[arg(long = "training", action = ArgAction::SetTrue)]
    pub(crate) training: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) upload: UploadArgs,
}
