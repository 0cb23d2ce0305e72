import { etcdErrors } from "../protocol/errors.ts";

/** Maximum size of the objects that all calls hold for their responses, in bytes. */
const maxBytes = 1024 ** 3;

/** Size of the objects that a call may hold although the maximum is reached, in bytes: large responses refuse no small ones. */
const freeBytes = 64 * 1024;

/** The objects that calls hold until their responses are encoded. */
export class HeldObjects {
  #bytes = 0;

  ofCall(): HeldByCall {
    return new HeldByCall((bytes) => {
      this.#bytes += bytes;
      return this.#bytes <= maxBytes;
    });
  }
}

/** What one call holds, and the newest revision when it was read. */
export class HeldByCall {
  readonly #count: (bytes: number) => boolean;
  #bytes = 0;
  revision = 0;

  /** `count` adds to the bytes of all calls. Returns whether these are within the maximum. */
  constructor(count: (bytes: number) => boolean) {
    this.#count = count;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Counts objects. Throws an EtcdError if all calls hold too much. */
  add(bytes: number): void {
    this.#bytes += bytes;
    if (!this.#count(bytes) && this.#bytes > freeBytes) throw etcdErrors.tooMany();
  }

  /** Idempotent. */
  release(): void {
    this.#count(-this.#bytes);
    this.#bytes = 0;
  }
}
