//! Finds the predictor in a Python file by reading its lines, without running it.

/// The name of the predictor in a file: the class with a method `run` or `predict`, or a function with
/// one of these names.
pub(crate) fn predictor_in(text: &str) -> Option<&str> {
    let mut class = None;
    for line in text.lines() {
        let code = line.trim_start();
        if let Some(name) = line.strip_prefix("class ") {
            class = Some(identifier(name));
        } else if let Some(name) = function(code) {
            let is_method = code.len() < line.len();
            match class.filter(|_| is_method) {
                Some(class) => return Some(class),
                None if !is_method => return Some(name),
                None => {}
            }
        } else if !code.is_empty() && code.len() == line.len() && !code.starts_with(['#', ')', '@'])
        {
            // Another statement at the top level ends the class.
            class = None;
        }
    }
    None
}

/// Whether the file is written for Cog, and does not register a Runpod handler.
pub(crate) fn is_cog_model(text: &str) -> bool {
    let imports_cog = text.lines().any(|line| {
        ["from cog ", "from cog.", "import cog"]
            .iter()
            .any(|import| line.trim_start().starts_with(import))
    });
    (imports_cog || predictor_in(text).is_some()) && !text.contains("runpod")
}

/// The name of the function that a line defines, if it is one that runs predictions.
fn function(code: &str) -> Option<&str> {
    let code = code.strip_prefix("async ").unwrap_or(code);
    let name = identifier(code.strip_prefix("def ")?);
    matches!(name, "run" | "predict").then_some(name)
}

fn identifier(text: &str) -> &str {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_predictor_is_a_class_or_a_function() {
        for (text, expected) in [
            (
                "class Mine(BasePredictor):\n    def setup(self): ...\n    async def predict(self) -> str: ...",
                Some("Mine"),
            ),
            (
                "class Output(BaseModel):\n    x: int\n\nclass Runner:\n    def run(self): ...",
                Some("Runner"),
            ),
            (
                "import os\n\ndef predict(text: str) -> str:\n    return text",
                Some("predict"),
            ),
            (
                "class A:\n    x = 1\n\ndef helper():\n    def run(): ...\n",
                None,
            ),
            ("print('hello')", None),
            ("", None),
        ] {
            assert_eq!(predictor_in(text), expected, "{text}");
        }
    }

    #[test]
    fn a_handler_is_not_a_cog_model() {
        assert!(is_cog_model("from cog import Input\n"));
        assert!(is_cog_model("def predict(): ..."));
        assert!(!is_cog_model(
            "import runpod\ndef run(job): ...\nrunpod.serverless.start({})"
        ));
        assert!(!is_cog_model("import app\napp.main()"));
    }
}
