//! Values of a case that are not known when it is written: what was answered before, and what an answer may look like.
//!
//! The README beside this file says what there is; these are the same words.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Answers by the names that a case gave them.
pub(crate) type Kept = BTreeMap<String, Value>;

/// A value with all that it refers to put in: `"$name"`, `"$name.member"`, `$join`, `$repeat` and `$plus`.
pub(crate) fn filled(value: &Value, kept: &Kept) -> Result<Value, String> {
    match value {
        Value::String(text) => match text.strip_prefix('$') {
            None => Ok(value.clone()),
            Some(literal) if literal.starts_with('$') => Ok(Value::String(literal.to_owned())),
            Some(path) => found(path, kept),
        },
        Value::Array(values) => values.iter().map(|value| filled(value, kept)).collect(),
        Value::Object(members) => match special(members) {
            Some((name @ ("$join" | "$repeat" | "$plus"), argument)) => {
                made(name, &filled(argument, kept)?)
                    .ok_or_else(|| format!("{name} does not take {argument}"))
            }
            _ => members
                .iter()
                .map(|(name, value)| Ok((name.clone(), filled(value, kept)?)))
                .collect::<Result<Map<_, _>, String>>()
                .map(Value::Object),
        },
        _ => Ok(value.clone()),
    }
}

/// Where a value is not as it must be, and how; none where it is.
pub(crate) fn differs(
    expected: &Value,
    value: &Value,
    kept: &Kept,
) -> Result<Option<String>, String> {
    let wrong = || Ok(Some(format!("{value} is not {expected}")));
    match (expected, value) {
        (Value::Object(members), value) => match (special(members), value) {
            (Some((name, argument)), value) => fits(name, argument, value, kept),
            (None, Value::Object(values)) => {
                for (name, expected) in members {
                    let value = values.get(name).unwrap_or(&Value::Null);
                    if let Some(why) = differs(expected, value, kept)? {
                        return Ok(Some(format!("{name}: {why}")));
                    }
                }
                Ok(None)
            }
            _ => wrong(),
        },
        (Value::Array(expected), Value::Array(values)) => {
            if expected.len() != values.len() {
                return Ok(Some(format!(
                    "{} and not {} of them",
                    values.len(),
                    expected.len()
                )));
            }
            for (number, (expected, value)) in expected.iter().zip(values).enumerate() {
                if let Some(why) = differs(expected, value, kept)? {
                    return Ok(Some(format!("{number}: {why}")));
                }
            }
            Ok(None)
        }
        _ if filled(expected, kept)? == *value => Ok(None),
        _ => wrong(),
    }
}

/// The one member of an object, where its name begins with `$`.
fn special(members: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (name, argument) = members.iter().next()?;
    (members.len() == 1 && name.starts_with('$')).then_some((name, argument))
}

fn found(path: &str, kept: &Kept) -> Result<Value, String> {
    let mut steps = path.split('.');
    let first = steps.next().and_then(|name| kept.get(name));
    let value = steps.try_fold(first, |value, step| {
        let value = value?;
        let member = match step.parse::<usize>() {
            Ok(number) => value.get(number),
            Err(_) => value.get(step),
        };
        Some(member)
    });
    value
        .flatten()
        .cloned()
        .ok_or_else(|| format!("nothing was kept as ${path}"))
}

/// None where the argument is not what it must be.
fn made(name: &str, argument: &Value) -> Option<Value> {
    let arguments = argument.as_array()?;
    let text = match (name, arguments.as_slice()) {
        ("$join", parts) => parts
            .iter()
            .map(Value::as_str)
            .collect::<Option<String>>()?,
        ("$repeat", [text, times]) => text
            .as_str()?
            .repeat(usize::try_from(times.as_u64()?).ok()?),
        ("$plus", [version, more]) => version_of(version)?
            .checked_add_signed(more.as_i64()?)?
            .to_string(),
        _ => return None,
    };
    Some(Value::String(text))
}

/// Whether a value is what `{name: argument}` asks for.
fn fits(
    name: &str,
    argument: &Value,
    value: &Value,
    kept: &Kept,
) -> Result<Option<String>, String> {
    let is = |fits: bool| Ok((!fits).then(|| format!("{value} is not {{{name}: {argument}}}")));
    let filled = |argument: &Value| filled(argument, kept);
    match (name, argument) {
        // A name that makes a value, which is then what is expected.
        ("$join" | "$repeat" | "$plus", argument) => {
            let expected = Value::from_iter([(name.to_owned(), argument.clone())]);
            is(filled(&expected)? == *value)
        }
        ("$is", Value::String(kind)) => match kind.as_str() {
            "text" => is(value.is_string()),
            "number" => is(value.is_u64()),
            "version" => is(value.is_string() && version_of(value).is_some()),
            "line" => is(value
                .as_str()
                .is_some_and(|text| !text.is_empty() && text.lines().count() == 1)),
            kind => Err(format!("there is no kind `{kind}`")),
        },
        ("$above", argument) => {
            let limit = filled(argument)?;
            let limit = version_of(&limit).ok_or_else(|| format!("{limit} is no number"))?;
            is(version_of(value).is_some_and(|version| version > limit))
        }
        ("$contains", argument) => match (filled(argument)?, value) {
            (Value::String(part), Value::String(text)) => is(text.contains(&part)),
            _ => is(false),
        },
        // Nowhere in it, however deep: for what must never be shown.
        ("$lacks", argument) => match filled(argument)? {
            Value::String(part) => is(!value.to_string().contains(&part)),
            other => Err(format!("{other} is no text")),
        },
        ("$in", Value::Array(choices)) => {
            for choice in choices {
                if differs(choice, value, kept)?.is_none() {
                    return Ok(None);
                }
            }
            is(false)
        }
        ("$all", Value::Array(all)) => {
            for each in all {
                if let Some(why) = differs(each, value, kept)? {
                    return Ok(Some(why));
                }
            }
            Ok(None)
        }
        // An array with an element for each of these, and any others.
        ("$has", Value::Array(all)) => {
            let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
            for each in all {
                let mut found = false;
                for element in elements {
                    found |= differs(each, element, kept)?.is_none();
                }
                if !found {
                    return Ok(Some(format!("none of them is {each}")));
                }
            }
            Ok(None)
        }
        _ => Err(format!("{name} does not take {argument}")),
    }
}

/// A number that may be beyond 2^53, and is text then.
fn version_of(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kept() -> Kept {
        [
            ("first".to_owned(), json!("18446744073709551614")),
            ("lease".to_owned(), json!({"token": "t", "list": [7]})),
        ]
        .into()
    }

    #[test]
    fn references_are_filled_in_and_what_was_not_kept_is_an_error() {
        let fill = |value: Value| filled(&value, &kept());
        assert_eq!(
            fill(json!(["$lease.token", "$$x", {"a": "$first"}])).unwrap(),
            json!(["t", "$x", {"a": "18446744073709551614"}])
        );
        assert_eq!(fill(json!("$lease.list.0")).unwrap(), json!(7));
        assert_eq!(
            fill(json!({"$plus": ["$first", 1]})).unwrap(),
            json!("18446744073709551615")
        );
        assert_eq!(
            fill(json!({"$plus": ["$first", -1]})).unwrap(),
            json!("18446744073709551613")
        );
        assert_eq!(
            fill(json!({"$join": ["a", {"$repeat": ["b", 2]}, "$lease.token"]})).unwrap(),
            json!("abbt")
        );
        for bad in [
            json!("$nothing"),
            json!("$lease.nothing"),
            json!({"$plus": ["$first", 2]}),
            json!({"$join": [1]}),
            json!({"$repeat": ["a"]}),
        ] {
            assert!(fill(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_differs_is_told_and_what_fits_is_not() {
        let told = |expected: Value, value: Value| differs(&expected, &value, &kept()).unwrap();
        for (expected, fits, differs) in [
            (
                json!({"a": 1, "b": null}),
                json!({"a": 1, "c": 2}),
                json!({"a": 1, "b": 2}),
            ),
            (
                json!([1, {"a": 1}]),
                json!([1, {"a": 1, "b": 2}]),
                json!([1, {"a": 1}, 3]),
            ),
            (json!([]), json!([]), json!([1])),
            (json!("$first"), json!("18446744073709551614"), json!("1")),
            (
                json!({"$above": "$first"}),
                json!("18446744073709551615"),
                json!("18446744073709551614"),
            ),
            (json!({"$above": 5}), json!(6), json!(null)),
            (
                json!({"$plus": ["$first", 1]}),
                json!("18446744073709551615"),
                json!("18446744073709551614"),
            ),
            (json!({"$is": "version"}), json!("1"), json!(1)),
            (json!({"$is": "number"}), json!(1), json!("1")),
            (json!({"$is": "line"}), json!("one"), json!("one\ntwo")),
            (
                json!({"$contains": "$lease.token"}),
                json!("at"),
                json!("a"),
            ),
            (
                json!({"$lacks": "secret"}),
                json!({"a": ["x"]}),
                json!({"a": ["a secret"]}),
            ),
            (json!({"$in": [null, "{}"]}), json!("{}"), json!("{ }")),
            (
                json!({"$all": [{"$is": "text"}, {"$contains": "a"}]}),
                json!("a"),
                json!("b"),
            ),
            (
                json!({"$has": [{"a": 2}]}),
                json!([{"a": 1}, {"a": 2, "b": 3}]),
                json!([{"a": 1}]),
            ),
        ] {
            assert_eq!(told(expected.clone(), fits), None, "{expected}");
            assert!(told(expected.clone(), differs).is_some(), "{expected}");
        }
        assert!(differs(&json!({"$nothing": 1}), &json!(1), &kept()).is_err());
    }
}
