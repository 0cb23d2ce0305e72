import { MessageCursor, WireFault } from "../../protobuf/message-cursor.ts";

const none: Buffer = Buffer.alloc(0);

/** The fields of a message that has each of these tags once at most, and no others. Throws a WireFault for all else. */
export class SingleFields {
  readonly #values = new Map<number, Buffer | bigint>();

  constructor(message: Buffer, tags: ReadonlySet<number>) {
    const cursor = new MessageCursor(message);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (!tags.has(tag)) throw new WireFault("has an unknown field");
      if (this.#values.has(tag)) throw new WireFault("has a field twice");
      this.#values.set(tag, (tag & 7) === 2 ? cursor.view() : cursor.bigint());
    }
  }

  has(tag: number): boolean {
    return this.#values.has(tag);
  }

  bytes(tag: number): Buffer {
    const value = this.#values.get(tag);
    return Buffer.isBuffer(value) ? value : none;
  }

  number(tag: number): bigint {
    const value = this.#values.get(tag);
    return typeof value === "bigint" ? value : 0n;
  }

  /** A range end. Some versions of etcd do not read one key if it is present and empty. */
  end(tag: number): Buffer {
    const end = this.bytes(tag);
    if (this.has(tag) && end.length === 0) throw new WireFault("has an empty range end");
    return end;
  }
}
