import { Transform, type TransformCallback } from "node:stream";

const invalid = /[^A-Za-z\d+/=]/;

/**
 * Decodes the base64 of a request of gRPC-Web, of which each part may be padded. It ends at invalid text: what is there until
 * then is no whole message, and refused as that.
 */
export class Base64Decoder extends Transform {
  /** What is not a group of four characters yet. */
  #rest = "";
  #isOver = false;

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    const text = this.#rest + chunk.toString("latin1");
    const whole = text.length - (text.length % 4);
    this.#rest = text.slice(whole);
    if (this.#isOver || invalid.test(text)) this.#end();
    else for (const part of text.slice(0, whole).match(/[^=]+={0,2}/g) ?? []) this.#decode(part);
    done();
  }

  override _flush(done: TransformCallback): void {
    if (!this.#isOver && this.#rest !== "") this.#decode(this.#rest);
    done();
  }

  #decode(part: string): void {
    this.push(Buffer.from(part, "base64"));
  }

  #end(): void {
    if (!this.#isOver) this.push(null);
    this.#isOver = true;
  }
}
