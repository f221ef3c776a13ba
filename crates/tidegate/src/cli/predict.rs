//! The arguments of `tidegate predict`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::{EnvironmentArgs, ModelArgs, TrustArgs, UploadArgs};

/// Run one prediction, with a local model or on a running server.
///
/// With a model folder or a script, the command loads the model, runs the prediction and stops the
/// model. With the URL of a running server, it sends the prediction there. The output goes to stdout, and
/// what the model prints to stderr; text that the model streams is printed as it arrives. Output files are
/// saved as `output.EXT`, or `output.0.EXT`, `output.1.EXT` and so on, and their names are printed.
#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Model folder, script with a Runpod handler, folder of models, or URL of a server. In a subfolder of
    /// a model, `.` is the model
    #[arg(default_value = ".")]
    pub(crate) target: String,
    /// Input as `name=value`, or `name=@file` for the content of a file. Numbers, lists and objects
    /// are written as JSON; for a list, the option may also be repeated, once per item
    #[arg(short, long = "input", value_name = "NAME=VALUE")]
    pub(crate) inputs: Vec<String>,
    /// All inputs as one JSON object; `@file` reads a file, `-` standard input. Prints the whole prediction
    /// as JSON: status, output, logs, metrics
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub(crate) json: Option<String>,
    /// Runpod handler script: the job as `{"input": {…}}` [default: test_input.json next to the
    /// script, if there is no other input]
    #[arg(long, alias = "test_input", value_name = "JSON", conflicts_with_all = ["inputs", "json"])]
    pub(crate) test_input: Option<String>,
    /// Write the output to this path instead; several output files become a folder
    #[arg(short, long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// File that contains the token for the server; TIDEGATE_API_TOKEN contains the token itself
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// Name of the model, `OWNER/NAME` or `NAME`, if the folder or the server has several
    #[arg(long = "model", value_name = "NAME")]
    pub(crate) model_name: Option<String>,
    /// Run the training function instead
    #[arg(long = "training", action = ArgAction::SetTrue)]
    pub(crate) training: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) environments: EnvironmentArgs,
    #[command(flatten)]
    pub(crate) upload: UploadArgs,
}
