/** A `word` is a key, a value, `in` or `notin`: which of these, only its place can tell. */
export type LabelTokenKind = "word" | "end" | "=" | "==" | "!=" | "!" | ">" | "<" | "(" | ")" | ",";

export interface LabelToken {
  readonly kind: LabelTokenKind;
  /** As it was written; empty at the end. */
  readonly text: string;
  /** Of its first character, in UTF-16 units from 0. */
  readonly position: number;
}

/** What a word consists of: anything but blanks and symbols. */
const word = /[^ \t\r\n=!<>(),]+/y;
const blanks = /[ \t\r\n]+/y;

/**
 * Cuts a label selector into tokens. Blanks only separate them. Every character that is neither blank
 * nor a symbol is part of a word, whether or not a key or a value may contain it.
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

  /** The longest symbol here, or undefined if there is none. */
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

  /** Goes on to the end of what matches here, if anything does. */
  #skip(pattern: RegExp): void {
    pattern.lastIndex = this.#position;
    if (pattern.test(this.#text)) this.#position = pattern.lastIndex;
  }
}
