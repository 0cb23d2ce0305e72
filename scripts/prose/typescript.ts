import { blank, blankCode, hidden } from "./hidden.ts";

/** After these words a slash begins a regular expression, not a division. */
const beforeRegExp =
  /(?:^|[^.\w$])(?:return|typeof|case|in|of|delete|void|throw|new|else|do|yield|await)$/;

/**
 * The comments of a TypeScript source and those of its strings that have more than one word, at their places: all other
 * characters are hidden, and the decoration of comments is blank, so that a sentence reads on over several lines.
 */
export function proseOfTypeScript(source: string): string {
  return new Lexer(source).run();
}

class Lexer {
  readonly #source: string;
  #at = 0;
  #prose = "";
  /** The last part of the code, to distinguish a regular expression from a division. */
  #code = "";
  /** For each template that is open, how many braces are open in its expression. */
  readonly #braces: number[] = [];

  constructor(source: string) {
    this.#source = source;
  }

  run(): string {
    while (this.#at < this.#source.length) this.#next();
    return this.#prose;
  }

  #next(): void {
    // Nothing else begins within it: in one piece, since most of a source is code.
    const code = this.#taken(/[^/"'`{}]+/y);
    if (code !== "") this.#putCode(code);
    else this.#nextToken();
  }

  #nextToken(): void {
    const { [this.#at]: char = "", [this.#at + 1]: next } = this.#source;
    const endsExpression = char === "}" && this.#braces.at(-1) === 0;
    if (endsExpression) this.#braces.pop();
    if (char === "/" && next === "/") this.#lineComment();
    else if (char === "/" && next === "*") this.#blockComment();
    else if (char === "/" && this.#isRegExp()) this.#regExp();
    else if (char === '"' || char === "'") this.#string(char);
    else if (char === "`" || endsExpression) this.#template();
    else this.#other(char);
  }

  #other(char: string): void {
    if (char === "{") this.#countBrace(1);
    if (char === "}") this.#countBrace(-1);
    this.#at++;
    this.#putCode(char);
  }

  #putCode(code: string): void {
    this.#code = (this.#code + code).slice(-20);
    this.#put(hidden(code));
  }

  #countBrace(change: number): void {
    const open = this.#braces.pop();
    if (open !== undefined) this.#braces.push(open + change);
  }

  #lineComment(): void {
    const comment = this.#taken(/\/\/.*/y);
    this.#put(blankCode(comment.replace(/^\/+/, blank)));
  }

  #blockComment(): void {
    const comment = this.#taken(/\/\*.*?(?:\*\/|$)/sy);
    this.#put(blankCode(comment.replaceAll(/^\/\*+|\*+\/$|(?<=\n\s*)\*/g, blank)));
  }

  #string(quote: string): void {
    const text = this.#taken(quote === '"' ? /"(?:[^"\\\n]|\\.)*"?/y : /'(?:[^'\\\n]|\\.)*'?/y);
    this.#code = quote;
    this.#putText(text);
    // What is put together with + is read as one.
    const plus = this.#taken(/\s*\+\s*(?=["'`])/y);
    this.#put(plus.replaceAll("+", " "));
  }

  /** From its first quote, or from the end of an expression in it, to its last quote or the next expression. */
  #template(): void {
    const text = this.#taken(/[`}](?:[^`\\$]|\\.|\$(?!\{))*(?:`|\$\{|$)/sy);
    if (text.endsWith("${")) this.#braces.push(0);
    this.#code = text.endsWith("${") ? "{" : "`";
    this.#putText(text);
  }

  #regExp(): void {
    const text = this.#taken(/\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/\w*/y);
    // Without an end it is a division.
    if (text === "") {
      this.#other("/");
      return;
    }
    this.#put(hidden(text));
    this.#code = "/x";
  }

  #isRegExp(): boolean {
    const code = this.#code.trimEnd();
    return beforeRegExp.test(code) || !/[\w$)\]}"'`]$/.test(code);
  }

  /** The content of a string, if it is more than a name. */
  #putText(text: string): void {
    const escaped = text.replaceAll(/\\./gs, blank);
    const content = escaped.replaceAll(/^["'`}]|(?:["'`]|\$\{)$/g, blank);
    this.#put(/\s/.test(escaped.slice(1, -1)) ? blankCode(content) : hidden(content));
  }

  #put(prose: string): void {
    this.#prose += prose;
  }

  /** Returns the match of `pattern`, which is sticky, at the current place. */
  #taken(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const [text = ""] = pattern.exec(this.#source) ?? [];
    this.#at += text.length;
    return text;
  }
}
