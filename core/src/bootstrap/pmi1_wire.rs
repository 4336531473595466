//! The PMI-1 wire protocol: lines of `name=value` fields, and the encoding of binary values in them. No I/O: the client
//! ([`super::pmi1`]) and the launcher's server share it. All input is untrusted.
//!
//! A request is one line `cmd=<verb> name=value ..`; the reply is one line of the same form. Names and values contain
//! no spaces. A server's free text (`msg=`) may contain spaces, so a word without `=` is skipped.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use super::VALUE_MAX;

/// Maximum length of a line in bytes, including the newline.
pub(crate) const LINE_MAX: usize = 64 * 1024;
/// Maximum length in characters of the chunk of a value that is stored under one key, even if the server accepts more.
const PART_MAX: usize = 8 * 1024;
/// Space for the length of a value and a dot before the first chunk.
const HEADER_MAX: usize = 6;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    fields: Vec<(String, String)>,
}

impl Message {
    /// Parses a line without its newline.
    ///
    /// # Errors
    /// A description of the defect, with the start of the line.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        let wrong = |what: &str| Err(format!("{what} in the line {}", quote(line)));
        let Ok(text) = std::str::from_utf8(line) else { return wrong("bytes that are not text") };
        if text.chars().any(|c| c.is_control()) {
            return wrong("control characters");
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for word in text.split(' ').filter(|w| !w.is_empty()) {
            let Some((name, value)) = word.split_once('=') else {
                if fields.is_empty() {
                    return wrong("no `cmd=`");
                }
                continue;
            };
            if fields.is_empty() != (name == "cmd") {
                return wrong(if fields.is_empty() { "no `cmd=`" } else { "a second `cmd=`" });
            }
            if fields.iter().any(|(n, _)| n == name) {
                return wrong(&format!("a second `{}=`", name.escape_debug()));
            }
            fields.push((name.to_owned(), value.to_owned()));
        }
        if fields.first().is_none_or(|(_, command)| command.is_empty()) {
            return wrong("no `cmd=`");
        }
        Ok(Self { fields })
    }

    /// A message of these fields, whose first is the verb.
    ///
    /// # Errors
    /// A description of the defect.
    pub(super) fn of(fields: Vec<(String, String)>) -> Result<Self, String> {
        match fields.first() {
            Some((name, command)) if name == "cmd" && !command.is_empty() => Ok(Self { fields }),
            _ => Err("no `cmd=`".into()),
        }
    }

    /// The verb.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.fields[0].1
    }

    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of a field as free text, in the encoding of [`Line::text`].
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        let mut rest = self.field(name)?.as_bytes();
        let mut bytes = Vec::with_capacity(rest.len());
        while let Some((first, more)) = rest.split_first() {
            let code = rest.get(1..3).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
            match code.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                Some(byte) => (bytes.push(byte), rest = &rest[3..]),
                None => (bytes.push(*first), rest = more),
            };
        }
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The value of a required field.
    ///
    /// # Errors
    /// A message that the field is missing.
    pub fn need(&self, name: &str) -> Result<&str, String> {
        self.field(name).ok_or_else(|| format!("`{name}=` is missing from the line {}", quote(self.line().as_bytes())))
    }

    /// The value of a required numeric field.
    ///
    /// # Errors
    /// A message that the field is missing or not a number of this type.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        self.need(name)?.parse().map_err(|_| {
            format!("`{name}=` is not a number, or out of range, in the line {}", quote(self.line().as_bytes()))
        })
    }

    /// The message as it was written, except for spaces and skipped words.
    pub(crate) fn line(&self) -> String {
        let words: Vec<_> = self.fields.iter().map(|(n, v)| format!("{n}={v}")).collect();
        words.join(" ")
    }
}

/// Builds one line.
#[derive(Debug)]
pub struct Line(String);

impl Line {
    /// A line with the verb `command`.
    #[must_use]
    pub fn new(command: &str) -> Self {
        Self(format!("cmd={command}"))
    }

    /// Adds a field. Characters that would break the line become `_`.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        let value = value.to_string();
        self.0.push(' ');
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(value.chars().map(|c| if c == ' ' || c.is_control() { '_' } else { c }));
        self
    }

    /// Adds free text. `%` and spaces are written as `%` and two digits; control characters become spaces.
    #[must_use]
    pub fn text(mut self, name: &str, text: &str) -> Self {
        self.0 += &format!(" {name}=");
        for c in text.chars() {
            match c {
                '%' => self.0 += "%25",
                c if c == ' ' || c.is_control() => self.0 += "%20",
                c => self.0.push(c),
            }
        }
        self
    }

    /// The line with its newline.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push('\n');
        self.0
    }
}

/// Splits received bytes into lines.
#[derive(Debug, Default)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are known to contain no newline.
    scanned: usize,
}

impl LineBuffer {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the next complete line and returns it without its newline.
    ///
    /// # Errors
    /// A message that the line is longer than `LINE_MAX` bytes, with the start of the line.
    pub fn pop(&mut self) -> Result<Option<Vec<u8>>, String> {
        let end = self.bytes[self.scanned..].iter().position(|&b| b == b'\n').map(|i| i + self.scanned);
        if end.unwrap_or(self.bytes.len()) >= LINE_MAX {
            return Err(format!("a line longer than {LINE_MAX} bytes: {}", quote(&self.bytes)));
        }
        let Some(end) = end else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        self.scanned = 0;
        Ok(Some(line))
    }

    /// Removes `count` bytes, once that many have arrived.
    pub(super) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        (self.bytes.len() >= count).then(|| {
            self.scanned = 0;
            self.bytes.drain(..count).collect()
        })
    }

    /// The bytes after the last newline.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes
    }
}

/// Splits a value into texts of at most `room` characters each, to be put under [`part_key`] 0, 1, .. The first text
/// begins with the length in bytes and a dot.
///
/// # Errors
/// A message if `room` is too small for any value.
pub(crate) fn pack(value: &[u8], room: usize) -> Result<Vec<String>, String> {
    let room = room.min(PART_MAX);
    if room < HEADER_MAX + 8 {
        return Err(format!("the launcher's limit of {room} characters for a value is too small"));
    }
    let first = ((room - HEADER_MAX) / 4 * 3).min(value.len());
    let (head, tail) = value.split_at(first);
    let mut parts = vec![format!("{}.{}", value.len(), BASE64.encode(head))];
    parts.extend(tail.chunks(room / 4 * 3).map(|c| BASE64.encode(c)));
    Ok(parts)
}

/// The key of one chunk of a value. Callers' keys cannot contain `~`.
pub(crate) fn part_key(key: &str, part: usize) -> String {
    if part == 0 { key.to_owned() } else { format!("{key}~{part}") }
}

/// Joins the chunks that `part(0)`, `part(1)`, .. return, until the value is complete.
///
/// # Errors
/// Those of `part`, and those that `wrong` makes from a description of malformed chunks.
pub(crate) fn unpack<E>(
    mut part: impl FnMut(usize) -> Result<String, E>,
    wrong: impl Fn(String) -> E,
) -> Result<Vec<u8>, E> {
    let head = part(0)?;
    let (length, text) =
        head.split_once('.').ok_or_else(|| wrong(format!("no value length in {}", quote_text(&head))))?;
    let length = length.parse::<usize>().ok().filter(|l| *l <= VALUE_MAX);
    let length = length.ok_or_else(|| wrong(format!("malformed value length in {}", quote_text(&head))))?;
    let decode = |text: &str| BASE64.decode(text).map_err(|e| wrong(format!("{e} in {}", quote_text(text))));
    let mut value = decode(text)?;
    for i in 1.. {
        if value.len() >= length {
            break;
        }
        let more = decode(&part(i)?)?;
        if more.is_empty() {
            return Err(wrong(format!("chunk {i} of the value is empty")));
        }
        value.extend(more);
    }
    if value.len() > length {
        return Err(wrong(format!("the value has {} bytes, but {length} were announced", value.len())));
    }
    Ok(value)
}

/// The start of untrusted bytes, escaped for a message.
#[must_use]
pub fn quote(bytes: &[u8]) -> String {
    const SHOWN: usize = 80;
    let more = if bytes.len() > SHOWN { ".." } else { "" };
    format!("\"{}\"{more}", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}

fn quote_text(text: &str) -> String {
    quote(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parse_reads_the_replies_of_known_launchers() {
        let m = Message::parse(b"cmd=get_result rc=-1 msg=key_nope_not_found value=unknown").unwrap();
        assert_eq!((m.command(), m.number::<i64>("rc"), m.field("value")), ("get_result", Ok(-1), Some("unknown")));
        let m = Message::parse(b"cmd=get_result rc=0 value=(vector,(0,1,2))").unwrap();
        assert_eq!(m.field("value"), Some("(vector,(0,1,2))"));
        let m = Message::parse(b"cmd=put_result rc=0 msg=all is well value=a=b").unwrap();
        assert_eq!(m.field("value"), Some("a=b"));
    }

    #[test]
    fn parse_refuses_what_is_no_message() {
        let lines: [&[u8]; 9] =
            [b"", b" ", b"hello", b"rc=0", b"cmd=", b"cmd=a cmd=b", b"cmd=a rc=0 rc=1", b"cmd=a \xff", b"cmd=a\x07"];
        for line in lines {
            assert!(Message::parse(line).is_err(), "{}", quote(line));
        }
        let m = Message::parse(b"cmd=maxes keylen_max=99999999999999999999999").unwrap();
        assert!(m.number::<usize>("keylen_max").unwrap_err().contains("keylen_max"));
        assert!(m.number::<usize>("vallen_max").unwrap_err().contains("missing"));
    }

    #[test]
    fn line_keeps_a_hostile_value_in_its_field() {
        let line = Line::new("abort").field("msg", "a b\ncmd=put").end();
        assert_eq!(line, "cmd=abort msg=a_b_cmd=put\n");
        assert_eq!(Message::parse(line.trim_end().as_bytes()).unwrap().command(), "abort");
    }

    #[test]
    fn text_arrives_as_it_was_written() {
        for text in ["set FARSIDE_SHM_DIR to 100% of a_b", "", "é %41 =", "%"] {
            let line = Line::new("abort").text("error_msg", text).end();
            assert_eq!(line.matches([' ', '\n']).count(), 2, "{line:?}");
            assert_eq!(Message::parse(line.trim_end().as_bytes()).unwrap().text("error_msg").as_deref(), Some(text));
        }
        let line = Line::new("abort").text("error_msg", "a\nb").end();
        assert_eq!(Message::parse(line.trim_end().as_bytes()).unwrap().text("error_msg").unwrap(), "a b");
    }

    #[test]
    fn line_without_end_is_refused_before_memory_fills() {
        let mut b = LineBuffer::default();
        let mut pushed = 0;
        while b.pop().is_ok() {
            b.push(&[b'x'; 1000]);
            pushed += 1000;
            assert!(pushed <= LINE_MAX + 1000);
        }
        assert!(b.rest().len() >= LINE_MAX);
    }

    #[test]
    fn unpack_refuses_parts_that_do_not_fit_the_length() {
        let parts = |all: &'static [&'static str]| {
            unpack(|i| all.get(i).map(|p| (*p).to_owned()).ok_or("missing".to_owned()), |w| w)
        };
        assert_eq!(parts(&["3.YWJj"]).unwrap(), b"abc");
        assert_eq!(parts(&["0."]).unwrap(), b"");
        for bad in [
            &["3.YWJjZA"] as &[&str],
            &["4.YWJj"],
            &["4.YWJj", ""],
            &["x.YWJj"],
            &["YWJj"],
            &["3.!!"],
            &["99999999.YWJj"],
            &["-1."],
        ] {
            assert!(parts(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(m) = Message::parse(&line) {
                let _ = m.text("cmd");
                prop_assert!(!m.command().is_empty());
                prop_assert_eq!(Message::parse(m.line().as_bytes()).unwrap(), m);
            }
        }

        #[test]
        fn parse_survives_any_words(line in "(cmd=[a-z]{0,3}|rc=-?[0-9]{0,30}| |=|[a-z]=|value=[ -~]{0,9}| ){0,12}") {
            if let Ok(m) = Message::parse(line.as_bytes()) {
                let _ = m.number::<i64>("rc");
                prop_assert_eq!(Message::parse(m.line().as_bytes()).unwrap(), m);
            }
        }

        #[test]
        fn lines_are_the_same_however_they_arrive(text in "[a-z\n]{0,200}", cut in 1usize..50) {
            let mut b = LineBuffer::default();
            let mut lines = Vec::new();
            for piece in text.as_bytes().chunks(cut) {
                b.push(piece);
                while let Some(line) = b.pop().unwrap() {
                    lines.push(String::from_utf8(line).unwrap());
                }
            }
            let mut want: Vec<_> = text.split('\n').map(str::to_owned).collect();
            let rest = want.pop().unwrap();
            prop_assert_eq!(lines, want);
            prop_assert_eq!(b.rest(), rest.as_bytes());
        }

        #[test]
        fn pack_and_unpack_give_the_value_back(value in proptest::collection::vec(any::<u8>(), 0..5000), room in 14usize..3000) {
            let parts = pack(&value, room).unwrap();
            prop_assert!(parts.iter().all(|p| p.len() <= room));
            let back = unpack(|i| parts.get(i).cloned().ok_or(format!("part {i} asked for")), |w| w);
            prop_assert_eq!(back.unwrap(), value);
        }
    }
}
