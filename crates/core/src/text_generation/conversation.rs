//! A conversation as one text, for models and backends that continue a prompt and know no messages.

use super::{ChatMessage, ChatRole, NotAText};

/// A conversation as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationText {
    /// The system messages at the beginning, separated by empty lines.
    pub system: Option<String>,
    /// The other messages. The text of a single message of the user is not changed; in a longer
    /// conversation each message begins with its author, and the last line asks for the answer.
    pub prompt: String,
}

impl ConversationText {
    /// The conversation of these messages.
    pub fn new(messages: &[ChatMessage]) -> Result<Self, NotAText> {
        let turn = |message: &ChatMessage| Ok((message.role, message.content.text()?.into_owned()));
        let turns: Result<Vec<_>, NotAText> = messages.iter().map(turn).collect();
        Ok(Self::from_turns(&turns?))
    }

    /// The conversation of messages whose text is known.
    pub fn from_turns(turns: &[(ChatRole, String)]) -> Self {
        let is_system = |turn: &&(ChatRole, String)| turn.0 == ChatRole::System;
        let (system, rest) = turns.split_at(turns.iter().take_while(is_system).count());
        let system: Vec<&str> = system.iter().map(|(_, text)| text.as_str()).collect();
        Self {
            system: (!system.is_empty()).then(|| system.join("\n\n")),
            prompt: prompt(rest),
        }
    }

    /// The whole conversation in one text, the system messages first.
    pub fn into_text(self) -> String {
        match self.system {
            Some(system) if self.prompt.is_empty() => system,
            Some(system) => format!("{system}\n\n{}", self.prompt),
            None => self.prompt,
        }
    }
}

fn prompt(turns: &[(ChatRole, String)]) -> String {
    match turns {
        [] => String::new(),
        [(ChatRole::User, text)] => text.clone(),
        turns => {
            let messages = turns
                .iter()
                .map(|(role, text)| format!("{}: {text}\n\n", author(*role)));
            let answer = format!("{}:", author(ChatRole::Assistant));
            messages.chain([answer]).collect()
        }
    }
}

fn author(role: ChatRole) -> &'static str {
    match role {
        ChatRole::System => "System",
        ChatRole::User => "User",
        ChatRole::Assistant => "Assistant",
    }
}

#[cfg(test)]
mod tests {
    use super::super::MessageContent;
    use super::*;

    fn conversation(messages: &[(ChatRole, &str)]) -> ConversationText {
        let messages: Vec<ChatMessage> = messages
            .iter()
            .map(|(role, text)| ChatMessage {
                role: *role,
                content: MessageContent::Text((*text).to_owned()),
                name: None,
            })
            .collect();
        ConversationText::new(&messages).unwrap()
    }

    #[test]
    fn a_single_message_is_the_prompt() {
        let text = conversation(&[(ChatRole::System, "Be brief."), (ChatRole::User, "hi ")]);
        assert_eq!(
            (text.system.as_deref(), &*text.prompt),
            (Some("Be brief."), "hi ")
        );
        assert_eq!(text.into_text(), "Be brief.\n\nhi ");
        assert_eq!(conversation(&[(ChatRole::User, "hi")]).into_text(), "hi");
    }

    #[test]
    fn a_longer_conversation_names_the_authors() {
        use ChatRole::{Assistant, System, User};
        let text = conversation(&[
            (System, "s"),
            (System, "t"),
            (User, "a"),
            (Assistant, "b"),
            (System, "u"),
            (User, "c"),
        ]);
        assert_eq!(text.system.as_deref(), Some("s\n\nt"));
        assert_eq!(
            text.prompt,
            "User: a\n\nAssistant: b\n\nSystem: u\n\nUser: c\n\nAssistant:"
        );
        assert_eq!(conversation(&[(System, "s")]).into_text(), "s");
        assert_eq!(conversation(&[]).into_text(), "");
    }
}
