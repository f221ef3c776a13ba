//! The syntax of JSON as a state machine that stops at the keys and values of the outermost object.

use super::BodyProblem;
use super::captured_text::CapturedText;

/// The deepest nesting; the parser of most backends has the same limit.
pub(super) const MAX_DEPTH: u32 = 127;

/// Checks the syntax of a text that arrives in parts.
#[derive(Debug)]
pub(super) struct JsonSyntax {
    state: State,
    depth: u32,
    /// One bit for each level, the innermost lowest: whether it is an object.
    objects: u128,
    captured: CapturedText,
    captures_value: bool,
}

/// Why the machine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanStep {
    /// The part is read to its end.
    NeedsMore,
    /// A key of the outermost object is complete; its text is captured.
    Key,
    /// The next byte is the first of a value of the outermost object.
    ValueStart,
    /// A value of the outermost object is complete.
    Value(ValueKind),
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    String,
    True,
    False,
    Other,
}

impl ValueKind {
    pub(super) fn as_bool(self) -> Option<bool> {
        match self {
            Self::True => Some(true),
            Self::False => Some(false),
            Self::String | Self::Other => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// Before the outermost object.
    Start,
    /// After `{`.
    FirstKey,
    /// After a comma in an object.
    Key,
    Colon,
    /// After a colon in the outermost object.
    TopValue,
    /// After a colon, or a comma in an array.
    Value,
    /// After `[`.
    FirstElement,
    AfterValue,
    String(StringRole, Escape),
    Number(Number),
    /// How many bytes of the literal have been read.
    Literal(Literal, u8),
    /// After the outermost object.
    End,
}

#[derive(Debug, Clone, Copy)]
enum Literal {
    True,
    False,
    Null,
}

impl Literal {
    fn name(self) -> &'static [u8] {
        match self {
            Self::True => b"true",
            Self::False => b"false",
            Self::Null => b"null",
        }
    }

    fn kind(self) -> ValueKind {
        match self {
            Self::True => ValueKind::True,
            Self::False => ValueKind::False,
            Self::Null => ValueKind::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StringRole {
    Key,
    Value,
}

/// How much of an escape has been read.
#[derive(Debug, Clone, Copy)]
enum Escape {
    None,
    Backslash,
    /// `\u` with this many hexadecimal digits.
    Hex(u8, u16),
}

/// The last part of a number that has been read.
#[derive(Debug, Clone, Copy)]
enum Number {
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Default for JsonSyntax {
    fn default() -> Self {
        Self {
            state: State::Start,
            depth: 0,
            objects: 0,
            captured: CapturedText::default(),
            captures_value: false,
        }
    }
}

impl JsonSyntax {
    /// Whether the next value of the outermost object is captured if it is a string.
    pub(super) fn capture_value(&mut self, captures_value: bool) {
        self.captures_value = captures_value;
    }

    /// The last string that was captured.
    pub(super) fn captured(&self) -> &CapturedText {
        &self.captured
    }

    /// Its text, if it is complete and Unicode.
    pub(super) fn text(&self) -> Option<&str> {
        self.captured.text()
    }

    /// Whether the outermost object is complete.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Reads on from `at`, which is where the problem is if there is one.
    pub(super) fn step(&mut self, part: &[u8], at: &mut usize) -> Result<ScanStep, BodyProblem> {
        while let Some(&byte) = part.get(*at) {
            let ended = match self.state {
                State::String(role, escape) => self.read_string(role, escape, part, at)?,
                State::Number(number) => self.read_number(number, byte, at)?,
                State::Literal(literal, count) => self.read_literal(literal, count, byte, at)?,
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {
                    *at += 1;
                    None
                }
                State::TopValue => {
                    self.state = State::Value;
                    return Ok(ScanStep::ValueStart);
                }
                _ => self.read_structure(byte, at)?,
            };
            match ended {
                Some(step) if self.depth == 1 => return Ok(step),
                Some(_) | None => {}
            }
        }
        Ok(ScanStep::NeedsMore)
    }

    /// Reads a byte between texts, numbers and literals.
    fn read_structure(
        &mut self,
        byte: u8,
        at: &mut usize,
    ) -> Result<Option<ScanStep>, BodyProblem> {
        let is_object = self.objects & 1 == 1;
        let mut closed = None;
        self.state = match (self.state, byte) {
            (State::Start, b'{') => self.open(true)?,
            (State::Start, _) => return Err(BodyProblem::NotAnObject),
            (State::FirstKey | State::Key, b'"') => self.begin_string(StringRole::Key),
            (State::Colon, b':') if self.depth == 1 => State::TopValue,
            (State::Colon, b':') => State::Value,
            (State::AfterValue, b',') if is_object => State::Key,
            (State::AfterValue, b',') => State::Value,
            (State::FirstKey, b'}') | (State::FirstElement, b']') => self.close(&mut closed),
            (State::AfterValue, b'}') if is_object => self.close(&mut closed),
            (State::AfterValue, b']') if !is_object => self.close(&mut closed),
            (State::Value | State::FirstElement, _) => self.begin_value(byte)?,
            _ => return Err(BodyProblem::Syntax),
        };
        *at += 1;
        Ok(closed)
    }

    fn begin_value(&mut self, byte: u8) -> Result<State, BodyProblem> {
        Ok(match byte {
            b'"' => self.begin_string(StringRole::Value),
            b'{' => self.open(true)?,
            b'[' => self.open(false)?,
            b'-' => State::Number(Number::Minus),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Integer),
            b't' => State::Literal(Literal::True, 1),
            b'f' => State::Literal(Literal::False, 1),
            b'n' => State::Literal(Literal::Null, 1),
            _ => return Err(BodyProblem::Syntax),
        })
    }

    fn open(&mut self, is_object: bool) -> Result<State, BodyProblem> {
        if self.depth == MAX_DEPTH {
            return Err(BodyProblem::TooDeep);
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(is_object);
        Ok(match is_object {
            true => State::FirstKey,
            false => State::FirstElement,
        })
    }

    fn close(&mut self, closed: &mut Option<ScanStep>) -> State {
        self.depth -= 1;
        self.objects >>= 1;
        *closed = Some(ScanStep::Value(ValueKind::Other));
        match self.depth {
            0 => State::End,
            _ => State::AfterValue,
        }
    }

    fn begin_string(&mut self, role: StringRole) -> State {
        if self.is_captured(role) {
            self.captured.clear();
        }
        State::String(role, Escape::None)
    }

    fn is_captured(&self, role: StringRole) -> bool {
        self.depth == 1 && (role == StringRole::Key || self.captures_value)
    }

    /// Reads a string to the end of a run of ordinary bytes, or one byte of an escape.
    fn read_string(
        &mut self,
        role: StringRole,
        escape: Escape,
        part: &[u8],
        at: &mut usize,
    ) -> Result<Option<ScanStep>, BodyProblem> {
        let next = match escape {
            Escape::None => return self.read_run(role, part, at),
            Escape::Backslash => self.read_escape(role, part[*at])?,
            Escape::Hex(digits, value) => self.read_hex(role, digits, value, part[*at])?,
        };
        self.state = State::String(role, next);
        *at += 1;
        Ok(None)
    }

    fn read_run(
        &mut self,
        role: StringRole,
        part: &[u8],
        at: &mut usize,
    ) -> Result<Option<ScanStep>, BodyProblem> {
        let rest = &part[*at..];
        let end = run_length(rest);
        let run = &rest[..end];
        let byte = rest.get(end).copied();
        if byte.is_some_and(|byte| byte < 0x20) {
            *at += end;
            return Err(BodyProblem::Syntax);
        }
        if self.is_captured(role) {
            self.captured.push(run);
        }
        *at += end + usize::from(byte.is_some());
        match byte {
            Some(b'"') => {}
            Some(_) => {
                self.state = State::String(role, Escape::Backslash);
                return Ok(None);
            }
            None => return Ok(None),
        }
        let (state, step) = match role {
            StringRole::Key => (State::Colon, ScanStep::Key),
            StringRole::Value => (State::AfterValue, ScanStep::Value(ValueKind::String)),
        };
        self.state = state;
        Ok(Some(step))
    }

    fn read_escape(&mut self, role: StringRole, byte: u8) -> Result<Escape, BodyProblem> {
        let decoded = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => return Ok(Escape::Hex(0, 0)),
            _ => return Err(BodyProblem::Syntax),
        };
        if self.is_captured(role) {
            self.captured.push(&[decoded]);
        }
        Ok(Escape::None)
    }

    fn read_hex(
        &mut self,
        role: StringRole,
        digits: u8,
        value: u16,
        byte: u8,
    ) -> Result<Escape, BodyProblem> {
        let digit = char::from(byte).to_digit(16).ok_or(BodyProblem::Syntax)?;
        let value = value << 4 | digit as u16;
        if digits < 3 {
            return Ok(Escape::Hex(digits + 1, value));
        }
        if self.is_captured(role) {
            self.captured.push_unit(value);
        }
        Ok(Escape::None)
    }

    /// Reads a byte of a number. The byte after a number is not consumed.
    fn read_number(
        &mut self,
        number: Number,
        byte: u8,
        at: &mut usize,
    ) -> Result<Option<ScanStep>, BodyProblem> {
        let next = match (number, byte) {
            (Number::Minus, b'0') => Number::Zero,
            (Number::Minus, b'1'..=b'9') | (Number::Integer, b'0'..=b'9') => Number::Integer,
            (Number::Zero | Number::Integer, b'.') => Number::Point,
            (Number::Point | Number::Fraction, b'0'..=b'9') => Number::Fraction,
            (Number::Zero | Number::Integer | Number::Fraction, b'e' | b'E') => Number::Exponent,
            (Number::Exponent, b'+' | b'-') => Number::ExponentSign,
            (Number::Exponent | Number::ExponentSign | Number::ExponentDigits, b'0'..=b'9') => {
                Number::ExponentDigits
            }
            (
                Number::Zero | Number::Integer | Number::Fraction | Number::ExponentDigits,
                b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r',
            ) => {
                self.state = State::AfterValue;
                return Ok(Some(ScanStep::Value(ValueKind::Other)));
            }
            _ => return Err(BodyProblem::Syntax),
        };
        self.state = State::Number(next);
        *at += 1;
        Ok(None)
    }

    fn read_literal(
        &mut self,
        literal: Literal,
        count: u8,
        byte: u8,
        at: &mut usize,
    ) -> Result<Option<ScanStep>, BodyProblem> {
        let name = literal.name();
        if name.get(usize::from(count)) != Some(&byte) {
            return Err(BodyProblem::Syntax);
        }
        *at += 1;
        if usize::from(count) + 1 == name.len() {
            self.state = State::AfterValue;
            return Ok(Some(ScanStep::Value(literal.kind())));
        }
        self.state = State::Literal(literal, count + 1);
        Ok(None)
    }
}

/// How many bytes of a string precede the first quotation mark, backslash or control character.
fn run_length(bytes: &[u8]) -> usize {
    const SHORT: usize = 24;
    let is_special = |byte: &u8| matches!(*byte, b'"' | b'\\' | 0..0x20);
    // Most strings are short: for them a loop takes less time than the call of `memchr2`.
    let (short, long) = bytes.split_at(bytes.len().min(SHORT));
    if let Some(length) = short.iter().position(is_special) {
        return length;
    }
    let run = &long[..memchr::memchr2(b'"', b'\\', long).unwrap_or(long.len())];
    // Without an early exit, so that the compiler can compare many bytes at once.
    let is_clean = !run.iter().fold(false, |any, byte| any | (*byte < 0x20));
    let length = if is_clean {
        None
    } else {
        run.iter().position(is_special)
    };
    short.len() + length.unwrap_or(run.len())
}
