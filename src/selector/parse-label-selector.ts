import { naturalInt64 } from "./int64.ts";
import { LabelRequirement } from "./label-requirement.ts";
import { LabelSelector } from "./label-selector.ts";
import { refuseOneMore, refuseTooLong, type SelectorError, unexpected } from "./selector-error.ts";

/**
 * Parses a label selector in Kubernetes' grammar, that of k8s.io/apimachinery/pkg/labels: `app=web,tier in
 * (front,back),!canary,generation>3`. An empty text selects everything. Throws SelectorError.
 *
 * It accepts the same texts with the same meaning, with two exceptions: selectors have a maximum size, and a NUL is
 * refused, where Kubernetes takes it for the end and ignores what follows.
 */
export function parseLabelSelector(text: string): LabelSelector {
  refuseTooLong(text);
  return new LabelSelector(new LabelParser(text).parse());
}

class LabelParser {
  readonly #lexer: LabelLexer;
  /** The first token that has not been consumed. */
  #next: LabelToken;

  constructor(text: string) {
    this.#lexer = new LabelLexer(text);
    this.#next = this.#lexer.next();
  }

  parse(): LabelRequirement[] {
    const requirements: LabelRequirement[] = [];
    if (this.#at("end")) return requirements;
    for (;;) {
      refuseOneMore(requirements.length, this.#next.position);
      requirements.push(this.#requirement());
      const after = this.#take();
      if (after.kind === "end") return requirements;
      if (after.kind !== ",") throw notExpected(after, '"," or the end');
    }
  }

  #requirement(): LabelRequirement {
    if (this.#at("!")) {
      this.#take();
      return new LabelRequirement(this.#key("a label key"), "absent", []);
    }
    const key = this.#key('a label key or "!"');
    if (this.#at(",") || this.#at("end")) return new LabelRequirement(key, "exists", []);
    return this.#comparison(key);
  }

  /** In the place of a key, `in` and `notin` are keys. */
  #key(expected: string): string {
    const token = this.#take();
    if (token.kind !== "word") throw notExpected(token, expected);
    const rule = ruleBrokenByKey(token.text);
    if (rule !== undefined) throw notExpected(token, rule);
    return token.text;
  }

  #comparison(key: string): LabelRequirement {
    const token = this.#take();
    switch (token.kind) {
      case "=":
      case "==":
        return new LabelRequirement(key, "=", [this.#value()]);
      case "!=":
        return new LabelRequirement(key, "!=", [this.#value()]);
      case ">":
      case "<":
        return new LabelRequirement(key, token.kind, [this.#integer()]);
    }
    if (token.text !== "in" && token.text !== "notin") {
      throw notExpected(token, '",", the end, or one of =, ==, !=, in, notin, >, <');
    }
    return new LabelRequirement(key, token.text, this.#values());
  }

  /** Parses one value, which may be missing: then it is empty. */
  #value(): string {
    if (this.#at(",") || this.#at("end")) return "";
    return this.#word('a label value, "," or the end');
  }

  /** Never negative: a minus can't begin a label value. */
  #integer(): string {
    const token = this.#take();
    const integer = naturalInt64(token.text);
    if (integer === undefined || ruleBrokenByValue(token.text) !== undefined) {
      throw notExpected(token, "an integer from 0 to 9223372036854775807");
    }
    return integer;
  }

  /**
   * Parses values in parentheses. A missing one, before, between or after commas, is empty.
   *
   * Two adjacent commas are read as a pair, and after a pair there must be a value or a comma. So `(a,,)` is refused
   * although `(a,)`, `(a,,b)` and `(a,,,)` are not. That is odd, but Kubernetes' own parser does the same, and a
   * selector works in both or in neither.
   */
  #values(): string[] {
    this.#expect("(", '"("');
    const values: string[] = [];
    while (!this.#at(")")) {
      if (this.#at(",")) {
        this.#take();
        if (values.length === 0 || this.#at(")")) values.push("");
        if (!this.#at(",")) continue;
        values.push("");
        this.#take();
        if (this.#at(")")) throw notExpected(this.#next, 'a label value or ","');
        continue;
      }
      values.push(this.#word('a label value, "," or ")"'));
      if (!this.#at(",") && !this.#at(")")) throw notExpected(this.#next, '"," or ")"');
    }
    this.#take();
    return values.length === 0 ? [""] : values;
  }

  #word(expected: string): string {
    const token = this.#expect("word", expected);
    const rule = ruleBrokenByValue(token.text);
    if (rule !== undefined) throw notExpected(token, rule);
    return token.text;
  }

  #expect(kind: LabelTokenKind, expected: string): LabelToken {
    const token = this.#take();
    if (token.kind !== kind) throw notExpected(token, expected);
    return token;
  }

  #at(kind: LabelTokenKind): boolean {
    return this.#next.kind === kind;
  }

  #take(): LabelToken {
    const token = this.#next;
    this.#next = this.#lexer.next();
    return token;
  }
}

function notExpected(token: LabelToken, expected: string): SelectorError {
  return unexpected(token.text, token.position, expected);
}

/** A `word` is a key, a value, `in` or `notin`, depending on its place. */
type LabelTokenKind = "word" | "end" | "=" | "==" | "!=" | "!" | ">" | "<" | "(" | ")" | ",";

interface LabelToken {
  readonly kind: LabelTokenKind;
  /** As written; empty at the end. */
  readonly text: string;
  /** Position of its first character, in UTF-16 units from 0. */
  readonly position: number;
}

/** The characters of a word: all but whitespace and symbols. */
const word = /[^ \t\r\n=!<>(),]+/y;
const blanks = /[ \t\r\n]+/y;

/**
 * Splits a label selector into tokens. Whitespace only separates tokens. Every other character that is not a symbol is
 * part of a word, even if keys and values may not contain it.
 */
class LabelLexer {
  readonly #text: string;
  #position = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** The next token; after the last one always the end. */
  next(): LabelToken {
    this.#skip(blanks);
    const position = this.#position;
    const kind = this.#symbol();
    if (kind !== undefined) {
      this.#position += kind.length;
      return { kind, text: kind, position };
    }
    this.#skip(word);
    const text = this.#text.slice(position, this.#position);
    return { kind: text === "" ? "end" : "word", text, position };
  }

  /** The longest symbol here; undefined if no symbol begins here. */
  #symbol(): Exclude<LabelTokenKind, "word" | "end"> | undefined {
    const character = this.#text[this.#position];
    switch (character) {
      case "=":
        return this.#text[this.#position + 1] === "=" ? "==" : "=";
      case "!":
        return this.#text[this.#position + 1] === "=" ? "!=" : "!";
      case ">":
      case "<":
      case "(":
      case ")":
      case ",":
        return character;
      default:
        return undefined;
    }
  }

  /** Skips what the pattern matches here, if anything. */
  #skip(pattern: RegExp): void {
    pattern.lastIndex = this.#position;
    if (pattern.test(this.#text)) this.#position = pattern.lastIndex;
  }
}

/*
 * Kubernetes' rules for the key and the value of a label (IsQualifiedName and IsValidLabelValue in
 * k8s.io/apimachinery/pkg/util/validation). Lengths are checked before patterns, so that no pattern runs on a long
 * text.
 */

const maxNameLength = 63;
const maxPrefixLength = 253;

const name = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;
const dnsSubdomain = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;

const nameRule =
  'letters, digits, "-", "_" and ".", with a letter or a digit at the start and at the end';

/** Returns what a key must be, as the end of a sentence; undefined if `key` is valid. */
export function ruleBrokenByKey(key: string): string | undefined {
  const slash = key.indexOf("/");
  if (slash !== -1) {
    const prefix = key.slice(0, slash);
    if (prefix.length > maxPrefixLength || !dnsSubdomain.test(prefix)) {
      return (
        `a label key whose prefix, before "/", is a DNS subdomain: at most ${maxPrefixLength} ` +
        'lower case letters, digits, "-" and ".", with a letter or a digit at the start and at the ' +
        'end and on both sides of each "."'
      );
    }
  }
  if (isName(key.slice(slash + 1))) return undefined;
  const where = slash === -1 ? "" : ' after the "/"';
  return `a label key of 1 to ${maxNameLength} characters${where}: ${nameRule}`;
}

/** Returns what a value must be, as the end of a sentence; undefined if `value` is valid. */
export function ruleBrokenByValue(value: string): string | undefined {
  if (value === "" || isName(value)) return undefined;
  return `a label value of at most ${maxNameLength} characters: ${nameRule}`;
}

function isName(text: string): boolean {
  return text.length <= maxNameLength && name.test(text);
}
