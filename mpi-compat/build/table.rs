//! Parser of the tables of functions and constants.
#![allow(dead_code)] // each of its users takes a part

const FUNCTIONS: &str = include_str!("../table/functions.txt");
const CONSTANTS: &str = include_str!("../table/constants.txt");

/// Both tables.
pub(crate) struct Table {
    pub chapters: Vec<Chapter>,
    pub groups: Vec<Group>,
}

/// The functions of one chapter, implemented by one module.
pub(crate) struct Chapter {
    pub module: String,
    pub title: String,
    pub functions: Vec<Function>,
}

/// Whether a function is implemented, and in which phase it may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Running,
    Always,
    NotYet,
}

/// One function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub mark: Mark,
    pub stage: u8,
    /// The C return type.
    pub returns: String,
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Only `MPI_Pcontrol` is variadic.
    pub variadic: bool,
    /// The function that has replaced it, if MPI-3.0 removed it.
    pub replacement: Option<String>,
    /// The text of the parameter list.
    pub text: String,
}

/// One parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub name: String,
    /// The type without `const` and stars.
    pub base: String,
    pub constant: bool,
    pub stars: usize,
    /// Whether the parameter is written with brackets, which count as a star.
    pub array: bool,
    /// An array of triples.
    pub triples: bool,
}

/// Constants of one kind.
pub(crate) struct Group {
    pub title: String,
    pub kind: String,
    /// The type of handles, or the tag of an enumeration.
    pub of: String,
    pub constants: Vec<Constant>,
}

/// A constant. The value of a pointer has a type of its own, and the value of an alias is the name of another constant.
pub(crate) struct Constant {
    pub name: String,
    pub value: String,
    pub c_type: String,
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

impl Table {
    pub(crate) fn read() -> Self {
        let mut chapters: Vec<Chapter> = Vec::new();
        for line in lines(FUNCTIONS) {
            if let Some((module, title)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
                chapters.push(Chapter { module: module.into(), title: title.into(), functions: Vec::new() });
            } else {
                chapters.last_mut().expect("a section first").functions.push(Function::read(line));
            }
        }
        let mut groups: Vec<Group> = Vec::new();
        for line in lines(CONSTANTS) {
            if let Some((title, kind)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
                let (kind, of) = kind.split_once(' ').unwrap_or((kind, ""));
                groups.push(Group { title: title.into(), kind: kind.into(), of: of.into(), constants: Vec::new() });
            } else {
                let mut words = line.splitn(3, ' ').map(str::to_owned);
                let mut word = || words.next().unwrap_or_default();
                let constant = Constant { name: word(), value: word(), c_type: word() };
                groups.last_mut().expect("a section first").constants.push(constant);
            }
        }
        Self { chapters, groups }
    }

    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        self.chapters.iter().flat_map(|chapter| &chapter.functions)
    }
}

impl Function {
    fn read(line: &str) -> Self {
        let bad = || -> ! { panic!("functions.txt: {line}") };
        let mark = match &line[..2] {
            "+ " => Mark::Running,
            "* " => Mark::Always,
            "- " => Mark::NotYet,
            _ => bad(),
        };
        let stage = line[2..3].parse().unwrap_or_else(|_| bad());
        let (line, replacement) =
            line[4..].split_once(", now ").map_or((&line[4..], None), |(line, now)| (line, Some(now.into())));
        let Some((head, text)) = line.strip_suffix(')').and_then(|rest| rest.split_once('(')) else { bad() };
        let at = head.rfind(' ').map_or(0, |space| space + 1);
        let (returns, name) = (head[..at].trim().to_owned(), head[at..].to_owned());
        let variadic = text.ends_with(", ...");
        let parameters = match text {
            "void" => Vec::new(),
            _ => text.trim_end_matches(", ...").split(", ").map(Parameter::read).collect(),
        };
        Self { mark, stage, returns, name, parameters, variadic, replacement, text: text.into() }
    }

    /// The name without `_c` or `_x`.
    pub(crate) fn base(&self) -> &str {
        self.name.strip_suffix("_c").or_else(|| self.name.strip_suffix("_x")).unwrap_or(&self.name)
    }

    /// Whether the return value is not an error code.
    pub(crate) fn returns_value(&self) -> bool {
        self.returns != "int" || self.name.ends_with("_toint")
    }
}

impl Parameter {
    fn read(text: &str) -> Self {
        let (text, triples) = match text.strip_suffix("[][3]") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let (text, array) = match text.strip_suffix("[]") {
            Some(text) => (text, true),
            None => (text, triples),
        };
        let (text, constant) = match text.strip_prefix("const ") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let at = text.rfind([' ', '*']).unwrap_or_else(|| panic!("functions.txt: parameter {text}"));
        let (c_type, name) = text.split_at(at + 1);
        let stars = c_type.matches('*').count() + usize::from(array);
        let base = c_type.replace('*', "").trim().to_owned();
        Self { name: name.to_owned(), base, constant, stars, array, triples }
    }

    /// Whether the type is an integer of 64 bits.
    pub(crate) fn is_long(&self) -> bool {
        matches!(self.base.as_str(), "MPI_Aint" | "MPI_Count" | "MPI_Offset")
    }
}
