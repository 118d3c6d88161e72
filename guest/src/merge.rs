//! Merges one document into another, as texts: Meltano's `merge(src, dest)`, that parses neither.
//!
//! What the merge does not have to touch stays as it was written: the order of keys, white space, the spelling of
//! numbers and escapes. Of a key that an object has twice the last value counts, as in Python's `json.loads`.
//!
//! It takes three passes, none of which recurses, so that nesting has no limit: `Wanted` lists the members of the new
//! text, `Found` is where the stored one has the same, and the edits that follow from both are put into a copy of it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

/// An object was to be merged into what is not an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// The keys that lead there, like `a.b.c`: one line of bounded length, without values. Empty where one of the
    /// two texts is itself not an object.
    pub(crate) path: String,
}

/// `stored` after `new` was merged into it, or `None` where that changes nothing.
///
/// An object is merged into the object of the same key; any other value replaces what is there.
///
/// Both must have been checked to be JSON objects. A text that is something else is a mismatch with an empty path, as
/// far as that is seen on the way: what is skipped or copied is not checked again.
pub(crate) fn merge(stored: &str, new: &str) -> Result<Option<String>, Mismatch> {
    let no_object = || Mismatch {
        path: String::new(),
    };
    let wanted = Wanted::read(new).ok_or_else(no_object)?;
    let found = Found::read(stored, &wanted).ok_or_else(no_object)?;
    let edits = edits(stored, &wanted, &found)?;
    // No edit puts a text in the place of the same text, so that any edit is a change.
    Ok((!edits.is_empty()).then(|| apply(stored, edits)))
}

/// The members of all objects that are reached through objects alone. What is inside of a list is replaced as a
/// whole, and not looked into.
struct Wanted<'n> {
    text: &'n str,
    /// The first is the document. An object comes after the one that it is in.
    objects: Vec<Object>,
    /// In the order of the text; one that is there twice has the place of the first and the value of the last.
    members: Vec<Member<'n>>,
    /// The member of an object (by its index) with a key (in its one spelling).
    names: HashMap<(usize, Cow<'n, str>), usize>,
}

struct Object {
    /// The member whose value it is; none for the document. It is the way back out of an object, in place of a stack.
    owner: Option<usize>,
    span: Span,
}

struct Member<'n> {
    /// The object that it is in.
    object: usize,
    /// As it is written.
    key: &'n str,
    /// From its key to the end of its value.
    span: Span,
    value: Value,
}

#[derive(Clone, Copy)]
enum Value {
    /// One of the objects.
    Object(usize),
    /// Anything else, which starts here.
    Other(usize),
}

/// A part of a text.
#[derive(Clone, Copy, Default)]
struct Span {
    start: usize,
    end: usize,
}

impl Span {
    fn of(self, text: &str) -> &str {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

impl<'n> Wanted<'n> {
    fn read(text: &'n str) -> Option<Self> {
        let mut wanted = Self {
            text,
            objects: Vec::new(),
            members: Vec::new(),
            names: HashMap::new(),
        };
        let mut cursor = Cursor::new(text);
        let start = cursor.open_document()?;
        let mut inner = wanted.add_object(None, start);
        loop {
            match cursor.step()? {
                Step::Member { key, start, .. } => {
                    let object = inner;
                    let index = wanted.add_member(object, key);
                    let value_start = cursor.at;
                    let value = if cursor.take(b'{').is_some() {
                        inner = wanted.add_object(Some(index), value_start);
                        Value::Object(inner)
                    } else {
                        cursor.skip_value()?;
                        Value::Other(value_start)
                    };
                    let member = wanted.members.get_mut(index)?;
                    member.value = value;
                    // An object goes on, and sets it again where it ends.
                    member.span = Span {
                        start,
                        end: cursor.at,
                    };
                }
                Step::End => {
                    let object = wanted.objects.get_mut(inner)?;
                    object.span.end = cursor.at;
                    let Some(owner) = object.owner else {
                        return cursor.is_at_end().then_some(wanted);
                    };
                    let member = wanted.members.get_mut(owner)?;
                    member.span.end = cursor.at;
                    inner = member.object;
                }
            }
        }
    }

    fn add_object(&mut self, owner: Option<usize>, start: usize) -> usize {
        self.objects.push(Object {
            owner,
            span: Span { start, end: start },
        });
        self.objects.len() - 1
    }

    /// The member with this key: a new one, or the one that the object has already.
    fn add_member(&mut self, object: usize, key: &'n str) -> usize {
        let next = self.members.len();
        let member = *self.names.entry((object, spelling(key))).or_insert(next);
        if member == next {
            self.members.push(Member {
                object,
                key,
                span: Span::default(),
                value: Value::Other(0),
            });
        }
        member
    }

    /// The member with this key. Where `guess` is that it is found sooner.
    fn find(&self, object: usize, key: &str, guess: usize) -> Option<usize> {
        let is_it = |member: &Member<'_>| member.object == object && member.key == key;
        if self.members.get(guess).is_some_and(is_it) {
            return Some(guess);
        }
        self.names.get(&(object, spelling(key))).copied()
    }

    /// The keys that lead to a member, that one included.
    fn path(&self, member: &Member<'n>) -> String {
        let mut keys = Vec::new();
        let mut next = Some(member);
        while let Some(member) = next {
            keys.push(member.key);
            next = (self.objects.get(member.object))
                .and_then(|object| self.members.get(object.owner?));
        }
        keys.reverse();
        let mut path = String::new();
        for (index, key) in keys.iter().enumerate() {
            let is_near_an_end = index < KEYS_SHOWN / 2 || index + KEYS_SHOWN / 2 >= keys.len();
            if index > 0 && (is_near_an_end || index == KEYS_SHOWN / 2) {
                path.push('.');
            }
            if is_near_an_end {
                push_key(&mut path, key);
            } else if index == KEYS_SHOWN / 2 {
                path.push('…');
            }
        }
        path
    }
}

/// Where the stored text has what is wanted: all zero where that was not come across.
///
/// All of it is as of the last time, so that the last value of a key counts. What was found in an earlier one of the
/// same key is still there, and is known by its start: it is before that of the object.
struct Found<'s> {
    /// For each object that is wanted.
    objects: Vec<Place<'s>>,
    /// The value of each member that is wanted.
    members: Vec<Span>,
}

#[derive(Clone, Copy, Default)]
struct Place<'s> {
    span: Span,
    /// None where the object is empty.
    last: Option<Last<'s>>,
}

/// The last member of an object.
#[derive(Clone, Copy)]
struct Last<'s> {
    /// The white space before its key.
    space: &'s str,
    /// Where its value ends.
    end: usize,
}

impl<'s> Found<'s> {
    fn read(text: &'s str, wanted: &Wanted<'_>) -> Option<Self> {
        let mut found = Self {
            objects: vec![Place::default(); wanted.objects.len()],
            members: vec![Span::default(); wanted.members.len()],
        };
        let mut cursor = Cursor::new(text);
        let start = cursor.open_document()?;
        let mut inner = 0;
        // Documents that are merged mostly have the same members in the same order.
        let mut guess = 0;
        found.enter(inner, start)?;
        loop {
            match cursor.step()? {
                Step::Member { space, key, .. } => {
                    let index = wanted.find(inner, key, guess);
                    guess = index.map_or(guess, |index| index + 1);
                    let member = index.and_then(|index| wanted.members.get(index));
                    let start = cursor.at;
                    let outer = inner;
                    if let Some(Value::Object(object)) = member.map(|member| member.value)
                        && cursor.take(b'{').is_some()
                    {
                        found.enter(object, start)?;
                        inner = object;
                    } else {
                        cursor.skip_value()?;
                        if let Some(index) = index {
                            *found.members.get_mut(index)? = Span {
                                start,
                                end: cursor.at,
                            };
                        }
                    }
                    // An object goes on, and sets it again where it ends.
                    let end = cursor.at;
                    found.objects.get_mut(outer)?.last = Some(Last { space, end });
                }
                Step::End => {
                    let end = cursor.at;
                    let place = found.objects.get_mut(inner)?;
                    place.span.end = end;
                    let span = place.span;
                    let Some(owner) = wanted.objects.get(inner)?.owner else {
                        return cursor.is_at_end().then_some(found);
                    };
                    *found.members.get_mut(owner)? = span;
                    inner = wanted.members.get(owner)?.object;
                    found.objects.get_mut(inner)?.last.as_mut()?.end = end;
                }
            }
        }
    }

    fn enter(&mut self, object: usize, start: usize) -> Option<()> {
        *self.objects.get_mut(object)? = Place {
            span: Span { start, end: start },
            last: None,
        };
        Some(())
    }
}

/// A text that comes in the place of another one.
struct Edit<'a> {
    span: Span,
    /// For a new member: the white space between the comma before it and its key.
    space: Option<&'a str>,
    text: &'a str,
}

/// What is to be done to the stored text, not in its order.
fn edits<'a>(
    stored: &str,
    wanted: &Wanted<'a>,
    found: &Found<'a>,
) -> Result<Vec<Edit<'a>>, Mismatch> {
    let mut edits = Vec::new();
    // Whether the members of an object go into the one that was found. They do not where it is put in as a whole, and
    // where a later value of the same key counts. An object comes after its owner, so that this is known in time.
    let mut is_met = vec![false; wanted.objects.len()];
    if let Some(document) = is_met.first_mut() {
        *document = true;
    }
    for (member, &span) in wanted.members.iter().zip(&found.members) {
        let (Some(is_object_met), Some(object), Some(target)) = (
            is_met.get_mut(member.object),
            wanted.objects.get(member.object),
            found.objects.get(member.object),
        ) else {
            continue;
        };
        if !*is_object_met {
            continue;
        }
        if span.start <= target.span.start {
            edits.push(match target.last {
                Some(last) => Edit {
                    span: Span {
                        start: last.end,
                        end: last.end,
                    },
                    space: Some(last.space),
                    text: member.span.of(wanted.text),
                },
                // An empty object has no style to go by: all of it becomes what the new text has.
                None => {
                    *is_object_met = false;
                    Edit {
                        span: target.span,
                        space: None,
                        text: object.span.of(wanted.text),
                    }
                }
            });
            continue;
        }
        match member.value {
            Value::Object(object) => {
                let place = found.objects.get(object);
                if place.is_none_or(|place| place.span.start != span.start) {
                    return Err(Mismatch {
                        path: wanted.path(member),
                    });
                }
                if let Some(is_met) = is_met.get_mut(object) {
                    *is_met = true;
                }
            }
            Value::Other(start) => {
                let end = member.span.end;
                let text = Span { start, end }.of(wanted.text);
                if span.of(stored) != text {
                    edits.push(Edit {
                        span,
                        space: None,
                        text,
                    });
                }
            }
        }
    }
    Ok(edits)
}

fn apply(stored: &str, mut edits: Vec<Edit<'_>>) -> String {
    // Stable: members that come to the same place stay in the order of the new text.
    edits.sort_by_key(|edit| edit.span.start);
    let added: usize = (edits.iter())
        .map(|edit| edit.space.map_or(0, |space| 1 + space.len()) + edit.text.len())
        .sum();
    let mut merged = String::with_capacity(stored.len() + added);
    let mut at = 0;
    for edit in edits {
        merged.push_str(stored.get(at..edit.span.start).unwrap_or_default());
        if let Some(space) = edit.space {
            merged.push(',');
            merged.push_str(space);
        }
        merged.push_str(edit.text);
        at = edit.span.end;
    }
    merged.push_str(stored.get(at..).unwrap_or_default());
    merged
}

/// How many keys of a path are shown: as many from its start as from its end.
const KEYS_SHOWN: usize = 16;

/// How many characters of a key are shown.
const KEY_SHOWN: usize = 100;

/// Appends a key to a path: shortened, and so that it does not break the line.
fn push_key(path: &mut String, key: &str) {
    let spelled = spelling(key);
    for (index, character) in spelled.chars().enumerate() {
        if index == KEY_SHOWN {
            path.push('…');
            return;
        }
        if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
            push_escape(path, u32::from(character));
        } else {
            path.push(character);
        }
    }
}

/// The one spelling of a key, so that keys are equal where these are: no character is escaped but the backslash,
/// and the lone surrogates, that a text can't hold in another way.
fn spelling(key: &str) -> Cow<'_, str> {
    if !key.contains('\\') {
        return Cow::Borrowed(key);
    }
    let mut spelled = String::with_capacity(key.len());
    let mut rest = key;
    while let Some((plain, escape)) = rest.split_once('\\') {
        spelled.push_str(plain);
        let mut characters = escape.chars();
        let kind = characters.next();
        rest = characters.as_str();
        match kind {
            Some('u') => rest = push_unescaped(&mut spelled, rest),
            Some('\\') => spelled.push_str("\\\\"),
            Some('b') => spelled.push('\u{8}'),
            Some('f') => spelled.push('\u{c}'),
            Some('n') => spelled.push('\n'),
            Some('r') => spelled.push('\r'),
            Some('t') => spelled.push('\t'),
            // A quote or a slash.
            other => spelled.extend(other),
        }
    }
    spelled.push_str(rest);
    Cow::Owned(spelled)
}

/// Appends what `\u` and the start of `digits` mean, with the second half of a pair where that follows. What is left
/// is returned.
fn push_unescaped<'a>(spelled: &mut String, digits: &'a str) -> &'a str {
    let Some((unit, rest)) = code_unit(digits) else {
        return digits;
    };
    if let 0xd800..0xdc00 = unit
        && let Some((low @ 0xdc00..0xe000, rest)) = rest.strip_prefix("\\u").and_then(code_unit)
    {
        let character = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
        spelled.extend(char::from_u32(character));
        return rest;
    }
    match char::from_u32(unit) {
        Some('\\') => spelled.push_str("\\\\"),
        Some(character) => spelled.push(character),
        None => push_escape(spelled, unit),
    }
    rest
}

/// The four digits that follow on `\u`, and what follows on them.
fn code_unit(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u32::from_str_radix(digits, 16).ok()?, rest))
}

fn push_escape(text: &mut String, unit: u32) {
    // Writing to a String never fails.
    let _ = write!(text, "\\u{unit:04x}");
}

/// Goes through a text that is JSON, and checks no more of it than it takes to find where keys and values start and end.
///
/// All of it moves on or says `None`, so that no text is gone through for ever.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// What comes next inside of an object.
enum Step<'a> {
    /// The start of a member. The cursor is at its value.
    Member {
        /// The white space before its key.
        space: &'a str,
        /// As it is written, without quotes.
        key: &'a str,
        /// Where the key starts.
        start: usize,
    },
    /// The end of the object. The cursor is behind it.
    End,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Enters the object that the text is, and says where that starts.
    fn open_document(&mut self) -> Option<usize> {
        self.space();
        let start = self.at;
        self.take(b'{')?;
        Some(start)
    }

    fn is_at_end(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    fn step(&mut self) -> Option<Step<'a>> {
        let mut space = self.space();
        if self.take(b',').is_some() {
            space = self.space();
        }
        if self.take(b'}').is_some() {
            return Some(Step::End);
        }
        let start = self.at;
        let key = self.string()?;
        self.space();
        self.take(b':')?;
        self.space();
        Some(Step::Member { space, key, start })
    }

    fn skip_value(&mut self) -> Option<()> {
        match self.rest().first()? {
            b'"' => self.string().map(|_| ()),
            b'{' | b'[' => self.skip_nested(),
            _ => {
                let start = self.at;
                self.find(|byte| is_space(byte) || matches!(byte, b',' | b'}' | b']'))?;
                (self.at > start).then_some(())
            }
        }
    }

    /// An object or a list, by counting how deep it goes.
    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.find(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'))? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                _ => depth = depth.checked_sub(1)?,
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    /// What is between the quotes.
    fn string(&mut self) -> Option<&'a str> {
        self.take(b'"')?;
        let start = self.at;
        while self.find(|byte| matches!(byte, b'"' | b'\\'))? == b'\\' {
            self.at += 2;
        }
        let inside = self.since(start)?;
        self.at += 1;
        Some(inside)
    }

    fn space(&mut self) -> &'a str {
        let start = self.at;
        if self.find(|byte| !is_space(byte)).is_none() {
            self.at = self.text.len();
        }
        self.since(start).unwrap_or_default()
    }

    /// Moves on to the next such byte.
    fn find(&mut self, is_it: impl Fn(u8) -> bool) -> Option<u8> {
        let (length, &byte) = (self.rest().iter().enumerate()).find(|&(_, &byte)| is_it(byte))?;
        self.at += length;
        Some(byte)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.rest().first() == Some(&byte)).then(|| self.at += 1)
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn since(&self, start: usize) -> Option<&'a str> {
        self.text.get(start..self.at)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;
    use serde_json::{Map, Value as Parsed};

    /// The result, which is JSON as the texts are.
    fn merged(stored: &str, new: &str) -> Option<String> {
        let merged = merge(stored, new).unwrap();
        for text in [stored, new].into_iter().chain(merged.as_deref()) {
            serde_json::from_str::<&RawValue>(text).unwrap();
        }
        merged
    }

    fn mismatch(stored: &str, new: &str) -> String {
        merge(stored, new).unwrap_err().path
    }

    fn check(examples: &[[&str; 3]]) {
        for [stored, new, expected] in examples {
            assert_eq!(
                merged(stored, new).as_deref(),
                Some(*expected),
                "{stored} {new}"
            );
        }
    }

    #[test]
    fn objects_are_merged_and_all_else_is_replaced() {
        check(&[
            [r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":2}"#],
            [r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":1,"b":2}"#],
            [r#"{"a":[1,2]}"#, r#"{"a":[3]}"#, r#"{"a":[3]}"#],
            [r#"{"a":{"b":1}}"#, r#"{"a":null}"#, r#"{"a":null}"#],
            [r#"{"a":{"b":1}}"#, r#"{"a":[{}]}"#, r#"{"a":[{}]}"#],
            [r#"{"a":{"b":1}}"#, r#"{"a":"}"}"#, r#"{"a":"}"}"#],
            [
                r#"{"a":{"b":{"c":1,"d":2},"e":3}}"#,
                r#"{"a":{"b":{"d":4},"f":5}}"#,
                r#"{"a":{"b":{"c":1,"d":4},"e":3,"f":5}}"#,
            ],
        ]);
    }

    #[test]
    fn what_changes_nothing_is_no_change() {
        for (stored, new) in [
            ("{}", " { } "),
            (r#" {"a" : 1} "#, "{}"),
            (r#" {"a" : 1.50, "b": {"c": [ ]}} "#, r#"{"b":{"c":[ ]}}"#),
            (r#"{"a":{ "x":1}}"#, r#"{"a":{}}"#),
            (r#"{"a":2,"a":1}"#, r#"{"a":3,"a":1}"#),
        ] {
            assert_eq!(merged(stored, new), None, "{stored} {new}");
        }
    }

    #[test]
    fn an_object_is_not_merged_into_something_else() {
        for value in ["1", "null", "[]", "[{}]", "\"\"", "false"] {
            let stored = format!(r#"{{"a": {{"b": 1, "c": {value}}}, "d": 2}}"#);
            assert_eq!(mismatch(&stored, r#"{"d":3,"a":{"c":{"x":1}}}"#), "a.c");
            assert_eq!(mismatch(&stored, r#"{"a":{"c":{}}}"#), "a.c");
        }
    }

    #[test]
    fn an_empty_object_is_added_where_there_is_none() {
        check(&[
            ["{}", r#"{"a":{}}"#, r#"{"a":{}}"#],
            [r#"{"b":1}"#, r#"{"a":{}}"#, r#"{"b":1,"a":{}}"#],
        ]);
    }

    #[test]
    fn what_is_not_replaced_is_kept_byte_for_byte() {
        check(&[
            [
                "\n{ \"z\" : 18446744073709551617 ,\t\"a\":[1.50 , 1e400], \"s\" :\"\\ud800\\u0041\", \"n\": 0 } \r\n",
                r#"{"n":-0.0e+1}"#,
                "\n{ \"z\" : 18446744073709551617 ,\t\"a\":[1.50 , 1e400], \"s\" :\"\\ud800\\u0041\", \"n\": -0.0e+1 } \r\n",
            ],
            [
                r#"{"\u0061": 1 , "b" :{"x" : "\"}{" } }"#,
                "{ \"a\" : [ 2 ,\n3 ] }",
                "{\"\\u0061\": [ 2 ,\n3 ] , \"b\" :{\"x\" : \"\\\"}{\" } }",
            ],
            [r#"{"a":1.0}"#, r#"{"a":1.00}"#, r#"{"a":1.00}"#],
            [r#"{"a":"/"}"#, r#"{"a":"\/"}"#, r#"{"a":"\/"}"#],
        ]);
    }

    #[test]
    fn a_new_member_comes_last_in_the_style_of_its_object() {
        check(&[
            [
                "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": 2\n  }\n}\n",
                r#"{"b":{"d":3},"e" : [ 4 ] ,"f":5}"#,
                "{\n  \"a\": 1,\n  \"b\": {\n    \"c\": 2,\n    \"d\":3\n  },\n  \"e\" : [ 4 ],\n  \"f\":5\n}\n",
            ],
            [
                r#"{ "a": 1, "b": 2 }"#,
                r#"{"c":3}"#,
                r#"{ "a": 1, "b": 2, "c":3 }"#,
            ],
            [
                r#"{"a": 1 , "b":1}"#,
                r#"{"\u0063" :{ "x":1}}"#,
                r#"{"a": 1 , "b":1, "\u0063" :{ "x":1}}"#,
            ],
        ]);
    }

    #[test]
    fn an_empty_object_becomes_what_the_new_one_is() {
        check(&[
            [" {\n}\n", "\t{ \"a\" :1 }\r", " { \"a\" :1 }\n"],
            [
                r#"{"a": { }, "b": 1}"#,
                r#"{"a":{"x":{"y":1}, "z":{}},"c":2}"#,
                r#"{"a": {"x":{"y":1}, "z":{}}, "b": 1, "c":2}"#,
            ],
            [
                r#"{"a":{}}"#,
                r#"{"b":1,"a":{"c":2}}"#,
                r#"{"a":{"c":2},"b":1}"#,
            ],
        ]);
    }

    #[test]
    fn keys_are_equal_where_they_mean_the_same() {
        for (stored, new) in [
            (r"a", r"\u0061"),
            (r"😀", r"\ud83d\uDE00"),
            (r"\uD83D\ude00", r"\ud83d\uDE00"),
            (r"\ud800", r"\uD800"),
            (r"\ud83d\ud83d\ude00", r"\ud83d😀"),
            (r"\udc00\ud800", r"\udC00\uD800"),
            (r"\/\b\f\n\r\t", r"/\u0008\u000C\u000a\u000D\u0009"),
            (r#"\"\\"#, r"\u0022\u005c"),
            (r"", r""),
        ] {
            for (stored, new) in [(stored, new), (new, stored)] {
                assert_eq!(
                    merged(
                        &format!(r#"{{"{stored}":1}}"#),
                        &format!(r#"{{"{new}":2}}"#)
                    ),
                    Some(format!(r#"{{"{stored}":2}}"#))
                );
            }
        }
    }

    #[test]
    fn keys_differ_where_they_mean_something_else() {
        for (stored, new) in [
            (r"\\ud800", r"\ud800"),
            (r"\\u0061", r"a"),
            (r"\ud800", r"\ud801"),
            (r"\ud83d", r"😀"),
            (r"\ude00\ud83d", r"😀"),
            (r"\\n", r"\n"),
            (r"\\", r"\\\\"),
            (r"a", r"A"),
            // Composed or not: texts are compared, not letters.
            (r"é", r"e\u0301"),
        ] {
            assert_eq!(
                merged(
                    &format!(r#"{{"{stored}":1}}"#),
                    &format!(r#"{{"{new}":2}}"#)
                ),
                Some(format!(r#"{{"{stored}":1,"{new}":2}}"#))
            );
        }
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        check(&[
            [
                r#"{"a":1,"b":2,"\u0061":3}"#,
                r#"{"a":4}"#,
                r#"{"a":1,"b":2,"\u0061":4}"#,
            ],
            [
                r#"{"a":{"x":1},"a":{"y":2}}"#,
                r#"{"a":{"x":3}}"#,
                r#"{"a":{"x":1},"a":{"y":2,"x":3}}"#,
            ],
            [
                r#"{"a":{"b":{"x":0}},"a":{}}"#,
                r#"{"a":{"b":{"x":1}}}"#,
                r#"{"a":{"b":{"x":0}},"a":{"b":{"x":1}}}"#,
            ],
            [
                r#"{"a":1,"a":{"x":2}}"#,
                r#"{"a":{"x":3}}"#,
                r#"{"a":1,"a":{"x":3}}"#,
            ],
            [
                r#"{"a":1}"#,
                r#"{"b":{"x":1},"c":2,"\u0062":{"y":3}}"#,
                r#"{"a":1,"\u0062":{"y":3},"c":2}"#,
            ],
            [
                r#"{"a":1}"#,
                r#"{"a":{"x":{}},"a":2,"b":3}"#,
                r#"{"a":2,"b":3}"#,
            ],
            [
                r#"{"a":{"x":1}}"#,
                r#"{"a":{"x":{}},"a":{"x":2}}"#,
                r#"{"a":{"x":2}}"#,
            ],
        ]);
        assert_eq!(mismatch(r#"{"a":{},"a":1}"#, r#"{"a":{}}"#), "a");
        assert_eq!(mismatch(r#"{"a":1}"#, r#"{"a":2,"a":{}}"#), "a");
    }

    #[test]
    fn a_path_is_one_line_of_bounded_length() {
        let at = |key: &str| {
            mismatch(
                &format!(r#"{{"{key}":1}}"#),
                &format!(r#"{{"{key}":{{}}}}"#),
            )
        };
        assert_eq!(at(r#"\u00e9 \"\/"#), "é \"/");
        assert_eq!(at(r"\n\u001b\u2028\ud800\\"), r"\u000a\u001b\u2028\ud800\\");
        assert_eq!(at(&"ä".repeat(100)), "ä".repeat(100));
        assert_eq!(at(&"ä".repeat(101)), format!("{}…", "ä".repeat(100)));
        let deep = |keys: usize, value: &str| {
            let start: String = (1..=keys).map(|key| format!(r#"{{"{key}":"#)).collect();
            format!("{start}{value}{}", "}".repeat(keys))
        };
        let at = |keys: usize| mismatch(&deep(keys, "\"hunter2\""), &deep(keys, "{}"));
        assert_eq!(at(1), "1");
        assert_eq!(at(16), "1.2.3.4.5.6.7.8.9.10.11.12.13.14.15.16");
        assert_eq!(at(17), "1.2.3.4.5.6.7.8.….10.11.12.13.14.15.16.17");
        assert_eq!(at(99), "1.2.3.4.5.6.7.8.….92.93.94.95.96.97.98.99");
    }

    #[test]
    fn what_is_no_object_is_a_mismatch_of_the_whole() {
        for text in ["", "[]", "1", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{}{}"] {
            assert_eq!(mismatch(text, "{\"a\":2}"), "", "{text}");
            assert_eq!(mismatch("{}", text), "", "{text}");
        }
    }

    #[test]
    fn nesting_has_no_limit() {
        const LEVELS: usize = 500_000;
        let nested = |value: &str| {
            let (start, end) = ("{\"a\":".repeat(LEVELS), "}".repeat(LEVELS));
            format!("{start}{value}{end}")
        };
        assert_eq!(merged(&nested("1"), &nested("1")), None);
        assert_eq!(merged(&nested("1"), &nested("2")), Some(nested("2")));
        assert_eq!(
            merged(&nested("{\"b\":1}"), &nested("{\"c\":2}")),
            Some(nested("{\"b\":1,\"c\":2}"))
        );
        assert_eq!(merged("{}", &nested("1")), Some(nested("1")));
        assert_eq!(
            merged(&nested("1"), "{\"a\":2}").as_deref(),
            Some("{\"a\":2}")
        );
        assert!(mismatch(&nested("1"), &nested("{}")).len() < 100);
    }

    #[test]
    fn lists_nest_without_limit() {
        let lists = |value: &str| {
            let (start, end) = ("[".repeat(500_000), "]".repeat(500_000));
            format!("{{\"a\":{start}{value}{end}}}")
        };
        assert_eq!(merged(&lists(""), &lists("{}")), Some(lists("{}")));
    }

    /// An object that has the numbers as its keys.
    fn wide(keys: impl Iterator<Item = usize>, value: &str) -> String {
        let members: Vec<String> = keys.map(|key| format!(r#""{key}":{value}"#)).collect();
        format!("{{{}}}", members.join(","))
    }

    #[test]
    fn width_has_no_limit() {
        let merged = merged(&wide(0..200_000, "1"), &wide((100_000..300_000).rev(), "2")).unwrap();
        let expected = [
            wide(0..100_000, "1"),
            wide(100_000..200_000, "2"),
            wide((200_000..300_000).rev(), "2"),
        ];
        assert_eq!(merged, expected.join(",").replace("},{", ","));
    }

    #[test]
    fn a_key_many_times_over_is_no_more_work() {
        let many =
            |value: &str| format!("{{{}}}", vec![format!("\"a\":{value}"); 50_000].join(","));
        let big = format!(r#"{{"a":{}}}"#, wide(0..50_000, "1"));
        let merged_into_many = merged(&many("{}"), &big).unwrap();
        assert!(merged_into_many.starts_with(r#"{"a":{},"a":{},"#));
        assert!(merged_into_many.ends_with(r#","49998":1,"49999":1}}"#));
        assert_eq!(merged(&big, &many("{\"0\":1}")), None);
    }

    /// A document before it is written down.
    #[derive(Clone, Debug)]
    enum Doc {
        Scalar(String),
        List(Vec<Doc>),
        /// A key may be there more than once.
        Object(Vec<(String, Doc)>),
    }

    const KEYS: [&str; 9] = ["", "a", "b", "c/", "é", "😀", "\"", "\\n", "\u{1}\n"];

    fn scalar() -> impl Strategy<Value = Doc> {
        prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|value| value.to_string()),
            (-2..3_i64).prop_map(|value| value.to_string()),
            any::<i64>().prop_map(|value| value.to_string()),
            any::<String>().prop_map(|value| Parsed::from(value).to_string()),
        ]
        .prop_map(Doc::Scalar)
    }

    fn members(value: impl Strategy<Value = Doc>) -> impl Strategy<Value = Vec<(String, Doc)>> {
        let key = prop::sample::select(&KEYS[..]).prop_map(str::to_owned);
        prop::collection::vec((key, value), 0..6)
    }

    fn doc() -> impl Strategy<Value = Doc> {
        scalar().prop_recursive(4, 60, 6, |inner| {
            prop_oneof![
                1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Doc::List),
                4 => members(inner).prop_map(Doc::Object),
            ]
        })
    }

    /// A document with the choices that writing it down takes.
    fn written() -> impl Strategy<Value = String> {
        (members(doc()), choices()).prop_map(|(members, choices)| {
            let mut pen = Pen::new(&choices);
            pen.write(&Doc::Object(members));
            pen.space();
            pen.text
        })
    }

    fn choices() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(any::<usize>(), 1..40)
    }

    /// Writes documents down with any white space, and keys with any escapes.
    struct Pen<'c> {
        choices: std::iter::Cycle<std::slice::Iter<'c, usize>>,
        text: String,
    }

    impl<'c> Pen<'c> {
        fn new(choices: &'c [usize]) -> Self {
            Self {
                choices: choices.iter().cycle(),
                text: String::new(),
            }
        }

        fn choose(&mut self, from: usize) -> usize {
            self.choices.next().unwrap() % from
        }

        fn space(&mut self) {
            let space = ["", "", "", " ", "\n  ", "\t", "\r\n"][self.choose(7)];
            self.text.push_str(space);
        }

        fn write(&mut self, doc: &Doc) {
            self.space();
            match doc {
                Doc::Scalar(text) => self.text.push_str(text),
                Doc::List(items) => {
                    self.text.push('[');
                    for (index, item) in items.iter().enumerate() {
                        self.comma(index);
                        self.write(item);
                    }
                    self.space();
                    self.text.push(']');
                }
                Doc::Object(members) => {
                    self.text.push('{');
                    for (index, (key, value)) in members.iter().enumerate() {
                        self.comma(index);
                        self.space();
                        self.member(key, value);
                    }
                    self.space();
                    self.text.push('}');
                }
            }
        }

        fn comma(&mut self, index: usize) {
            if index > 0 {
                self.space();
                self.text.push(',');
            }
        }

        fn member(&mut self, key: &str, value: &Doc) {
            self.text.push('"');
            for character in key.chars() {
                let plain = Parsed::from(character.to_string()).to_string();
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units).iter();
                let escaped: String = match self.choose(4) {
                    0 => units.map(|unit| format!("\\u{unit:04x}")).collect(),
                    1 => units.map(|unit| format!("\\u{unit:04X}")).collect(),
                    _ => plain.trim_matches('"').replace("\\\\", "\\u005c"),
                };
                let quote = character == '"' && !escaped.contains('u');
                self.text.push_str(if quote { "\\\"" } else { &escaped });
            }
            self.text.push('"');
            self.space();
            self.text.push(':');
            self.write(value);
        }
    }

    fn parse(text: &str) -> Map<String, Parsed> {
        serde_json::from_str(text).unwrap()
    }

    /// Meltano's merge, which goes on after a mismatch to list all of them.
    fn reference(
        stored: &mut Map<String, Parsed>,
        new: &Map<String, Parsed>,
        path: &[&str],
        mismatches: &mut Vec<String>,
    ) {
        for (key, value) in new {
            let path = [path, &[key.as_str()]].concat();
            let Parsed::Object(value) = value else {
                stored.insert(key.clone(), value.clone());
                continue;
            };
            let target = (stored.entry(key.clone())).or_insert_with(|| Map::new().into());
            match target.as_object_mut() {
                Some(target) => reference(target, value, &path, mismatches),
                None => mismatches.push(show(&path)),
            }
        }
    }

    fn show(path: &[&str]) -> String {
        let shown: Vec<String> = (path.iter())
            .map(|key| {
                key.replace('\\', "\\\\")
                    .replace('\u{1}', "\\u0001")
                    .replace('\n', "\\u000a")
            })
            .collect();
        shown.join(".")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn it_is_the_merge_of_the_parsed_documents(stored in written(), new in written()) {
            let mut expected = parse(&stored);
            let mut mismatches = Vec::new();
            reference(&mut expected, &parse(&new), &[], &mut mismatches);
            match merge(&stored, &new) {
                Err(Mismatch { path }) => prop_assert!(mismatches.contains(&path), "{path}"),
                Ok(merged) => {
                    prop_assert_eq!(mismatches, Vec::<String>::new());
                    prop_assert_eq!(parse(merged.as_ref().unwrap_or(&stored)), expected);
                    prop_assert_ne!(merged, Some(stored));
                }
            }
        }

        #[test]
        fn a_document_merged_into_itself_is_no_change(text in written()) {
            prop_assert_eq!(merge(&text, &text), Ok(None));
        }

        #[test]
        fn what_was_merged_is_not_merged_again(stored in written(), new in written()) {
            if let Ok(Some(merged)) = merge(&stored, &new) {
                prop_assert_eq!(merge(&merged, &new), Ok(None));
            }
        }

        #[test]
        fn the_other_members_keep_their_bytes(
            stored in members(doc()),
            new in members(scalar()),
            levels in 0..4_usize,
            choices in choices(),
        ) {
            let nest = |doc| (0..levels).fold(doc, |doc, _| Doc::Object(vec![("a".to_owned(), doc)]));
            let write = |doc: &Doc| {
                let mut pen = Pen::new(&choices);
                pen.write(doc);
                pen.text
            };
            // The members are written one by one, to know their bytes, and then put into an object.
            let mut pen = Pen::new(&choices);
            let texts: Vec<String> = (stored.iter())
                .map(|(key, value)| {
                    pen.text.clear();
                    pen.member(key, value);
                    pen.text.clone()
                })
                .collect();
            let object = Doc::Scalar(format!("{{{}}}", texts.join(" ,\n")));
            let stored_text = write(&nest(object));
            let new_text = write(&nest(Doc::Object(new.clone())));
            let merged = merge(&stored_text, &new_text).unwrap();
            let mut rest = merged.as_deref().unwrap_or(&stored_text);
            for ((key, _), text) in stored.iter().zip(&texts) {
                if new.iter().all(|(other, _)| other != key) {
                    let found = rest.find(text.as_str());
                    prop_assert!(found.is_some(), "{text} in {rest}");
                    rest = &rest[found.unwrap() + text.len()..];
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic_or_go_on_for_ever(
            stored in r#"\{?([{}\[\],:"\\u a-d0-9é]|"[ab]":\{?){0,20}\}?"#,
            new in r#"\{?([{}\[\],:"\\u a-d0-9é]|"[ab]":\{?){0,20}\}?"#,
        ) {
            let _ = merge(&stored, &new);
            let _ = merge(&stored, r#"{"a":{"b":1},"b":{"a":1},"c":1}"#);
            let _ = merge(r#"{"a":{"b":1},"b":{"a":1},"c":1}"#, &new);
        }
    }
}
