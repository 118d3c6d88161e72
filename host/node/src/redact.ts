// What others wrote, as it may be shown: without secrets, since servers and plugins may echo what they were sent, and in one line.

/** A shorter secret is only replaced where it stands as a word of its own: to replace each `a` of a message would tell it. */
const SHORT = 4;
const MARK = "[redacted]";
/** More than any message needs. */
const LONGEST = 2_000;

/** Takes all forms in which secrets travel out of a text, and makes it one line. */
export type Redact = (text: string) => string;

/** The password first, then all else that is nobody's business. */
export function redactor(user: string, secrets: string[]): Redact {
  const forms = secrets
    .filter((secret) => secret !== "")
    .flatMap((secret) => formsOf(user, secret))
    // The longest first: a form may hold a shorter one.
    .sort((a, b) => b.length - a.length);
  return (text) => oneLine(forms.reduce(replace, text));
}

function formsOf(user: string, secret: string): string[] {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const bare = (text: string) => text.replace(/=+$/, "");
  const both = base64(`${user}:${secret}`);
  const alone = base64(secret);
  const escaped = secret.replaceAll("\\", "\\\\");
  const percent = [...Buffer.from(secret)]
    .map((byte) => {
      const char = String.fromCharCode(byte);
      return /[A-Za-z0-9]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    })
    .join("");
  const form = new URLSearchParams([["", secret]]).toString().slice(1);
  return [
    ...new Set([
      both,
      bare(both),
      alone,
      bare(alone),
      percent,
      form,
      encodeURIComponent(secret.toWellFormed()),
      // As SQL and JSON quote it.
      escaped.replaceAll("'", "\\'"),
      escaped.replaceAll('"', '\\"'),
      secret,
    ]),
  ];
}

function replace(text: string, secret: string): string {
  if (secret.length >= SHORT) return text.replaceAll(secret, MARK);
  const [first = "", ...rest] = text.split(secret);
  return rest.reduce((before, after) => {
    const partOfAWord = /[\p{L}\p{N}]$/u.test(before) || /^[\p{L}\p{N}]/u.test(after);
    return before + (partOfAWord ? secret : MARK) + after;
  }, first);
}

/** What moves a cursor or turns the direction of reading is escaped. */
export function oneLine(text: string): string {
  const chars = [...text];
  const cut = chars.length > LONGEST ? `${chars.slice(0, LONGEST).join("")}…` : text;
  const named: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  return cut.replace(
    /[\p{Cc}\u2028-\u202e\u2066-\u2069\u200e\u200f\u061c]/gu,
    (char) => named[char] ?? `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
