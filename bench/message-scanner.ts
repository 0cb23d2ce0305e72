/** The state of the scanner: the part of a message that it reads next. */
type Reading = "length" | "tag" | "value" | "content";

/**
 * Scans the gRPC messages of one call as their bytes arrive, in pieces of any size, and keeps almost nothing: it
 * counts one repeated field, and remembers numbers and, if requested, short texts. So lists of many megabytes for a
 * thousand clients need no memory in the load, and the server is what is measured. Fields below 16 are read only if
 * their tag takes one byte, as all here do.
 */
export class MessageScanner {
  /** The message that is being read, or was just completed. */
  count = 0;
  /** The numbers in fields 1, 3 and 4; 0 if absent. */
  number1 = 0;
  number3 = 0;
  number4 = 0;
  /** The content of fields 1 and 3 if they are length-delimited and `keep` requests them. */
  bytes1: Buffer | undefined;
  bytes3: Buffer | undefined;

  readonly #counted: number;
  readonly #keeps: boolean;
  readonly #onMessage: (scanner: MessageScanner) => void;
  #reading: Reading = "length";
  /** Missing bytes of the prefix, then of the message, then of the field. */
  #prefixLeft = 5;
  #messageLeft = 0;
  #contentLeft = 0;
  #tag = 0;
  #value = 0;
  #scale = 1;
  #kept: Buffer[] = [];

  /** `counted` is the number of a repeated, length-delimited field. */
  constructor(counted: number, keeps: boolean, onMessage: (scanner: MessageScanner) => void) {
    this.#counted = counted;
    this.#keeps = keeps;
    this.#onMessage = onMessage;
  }

  /** Reads `bytes` from `start` to `end`. Does not retain them. */
  take(bytes: Buffer, start: number, end: number): void {
    let at = start;
    while (at < end) {
      if (this.#reading === "length") at = this.#takePrefix(bytes, at, end);
      else if (this.#reading === "content") at = this.#takeContent(bytes, at, end);
      else at = this.#takeVarint(bytes, at, end);
    }
  }

  #takePrefix(bytes: Buffer, start: number, end: number): number {
    let at = start;
    while (at < end && this.#prefixLeft > 0) {
      const byte = bytes[at++] ?? 0;
      // The first byte is the compression flag; compression was not requested.
      if (this.#prefixLeft-- < 5) this.#messageLeft = this.#messageLeft * 256 + byte;
    }
    if (this.#prefixLeft === 0) this.#begin();
    return at;
  }

  #begin(): void {
    this.count = 0;
    this.number1 = 0;
    this.number3 = 0;
    this.number4 = 0;
    this.bytes1 = undefined;
    this.bytes3 = undefined;
    this.#nextField();
  }

  #takeVarint(bytes: Buffer, start: number, end: number): number {
    let at = start;
    while (at < end) {
      const byte = bytes[at++] ?? 0;
      this.#value += (byte & 0x7f) * this.#scale;
      this.#scale *= 128;
      if (byte >= 0x80) continue;
      this.#messageLeft -= at - start;
      this.#tookVarint();
      return at;
    }
    this.#messageLeft -= at - start;
    return at;
  }

  #tookVarint(): void {
    const value = this.#value;
    this.#value = 0;
    this.#scale = 1;
    if (this.#reading === "tag") {
      this.#tag = value;
      this.#reading = "value";
      return;
    }
    const field = this.#tag >> 3;
    if ((this.#tag & 7) === 2) {
      if (field === this.#counted) this.count++;
      this.#contentLeft = value;
      this.#messageLeft -= value;
      if (this.#messageLeft < 0) throw new RangeError("A field is longer than its message.");
      this.#reading = "content";
      if (value === 0) this.#tookContent();
      return;
    }
    if ((this.#tag & 7) !== 0) throw new RangeError(`A message has the tag ${this.#tag}.`);
    if (field === 1) this.number1 = value;
    else if (field === 3) this.number3 = value;
    else if (field === 4) this.number4 = value;
    this.#nextField();
  }

  #takeContent(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#contentLeft);
    if (this.#keeps && this.#tag >> 3 !== this.#counted) {
      this.#kept.push(Buffer.from(bytes.subarray(start, stop)));
    }
    this.#contentLeft -= stop - start;
    if (this.#contentLeft === 0) this.#tookContent();
    return stop;
  }

  #tookContent(): void {
    if (this.#kept.length > 0) {
      const content = Buffer.concat(this.#kept.splice(0));
      if (this.#tag >> 3 === 1) this.bytes1 = content;
      else if (this.#tag >> 3 === 3) this.bytes3 = content;
    }
    this.#nextField();
  }

  #nextField(): void {
    if (this.#messageLeft > 0) {
      this.#reading = "tag";
      return;
    }
    if (this.#messageLeft < 0) throw new RangeError("A number is longer than its message.");
    this.#reading = "length";
    this.#prefixLeft = 5;
    this.#onMessage(this);
  }
}
