/** A `word` is a key, a value, `in` or `notin`, depending on its place. */
export type LabelTokenKind = "word" | "end" | "=" | "==" | "!=" | "!" | ">" | "<" | "(" | ")" | ",";

export interface LabelToken {
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
export class LabelLexer {
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
