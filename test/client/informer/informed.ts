import { DeletedFinalStateUnknown } from "../../../src/client/informer/delta-fifo/delta-fifo.ts";
import type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "../../../src/client/informer/handlers/handler-registration.ts";
import type { InformerError } from "../../../src/client/informer/handlers/informer-errors.ts";
import type { SharedInformerOptions } from "../../../src/client/informer/informer-options.ts";
import { SharedInformer } from "../../../src/client/informer/shared-informer.ts";
import type { TypedObject } from "../../../src/client/values/typed-object.ts";
import type { ValueCodec } from "../../../src/client/values/value-codec.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BreakingStorage } from "../../reflector/breaking-storage.ts";

/** Values are text; one that begins with a question mark can't be decoded. */
export const texts: ValueCodec<string> = {
  decode: (value) => {
    const text = Buffer.from(value).toString();
    if (text.startsWith("?")) throw new SyntaxError("it is a question.");
    return text;
  },
  encode: (text) => Buffer.from(text),
};

/** The calls of a handler, one line each. */
export class RecordedHandler implements EventHandler<string> {
  readonly lines: string[] = [];

  onAdd(object: TypedObject<string>, isInInitialList: boolean): void {
    this.lines.push(`${isInInitialList ? "initially " : ""}added ${short(object)}`);
  }

  onUpdate(before: TypedObject<string>, object: TypedObject<string>): void {
    this.lines.push(
      before === object ? `same ${short(object)}` : `${short(before)} is ${short(object)}`,
    );
  }

  onDelete(object: TypedObject<string> | DeletedFinalStateUnknown<TypedObject<string>>): void {
    this.lines.push(
      object instanceof DeletedFinalStateUnknown
        ? `vanished ${short(object.object)}`
        : `deleted ${short(object)}`,
    );
  }

  /** The calls since this was called last. */
  take(): string[] {
    return this.lines.splice(0);
  }
}

function short({ key, value, modRevision }: TypedObject<string>): string {
  return `${key}=${value}@${modRevision}`;
}

/** An informer over an embedded store whose streams can be broken, on a clock that the test advances. */
export class Informed {
  readonly clock = new FakeClock();
  readonly store = new BreakingStorage({ clock: this.clock });
  readonly informer: SharedInformer<string>;
  readonly errors: InformerError[] = [];

  constructor(options: Partial<SharedInformerOptions<string>> = {}) {
    this.informer = new SharedInformer({
      storage: this.store,
      codec: texts,
      clock: this.clock,
      random: () => 0,
      onError: (error) => this.errors.push(error),
      ...options,
    });
  }

  /** Started, and synced if possible. */
  static async start(options: Partial<SharedInformerOptions<string>> = {}): Promise<Informed> {
    const informed = new Informed(options);
    await informed.start();
    return informed;
  }

  async start(): Promise<void> {
    this.informer.start();
    await this.clock.settle();
  }

  /** Adds a handler that records its calls. */
  listen(
    options?: EventHandlerOptions,
  ): RecordedHandler & { readonly registration: EventHandlerRegistration } {
    const recorded = new RecordedHandler();
    return Object.assign(recorded, {
      registration: this.informer.addEventHandler(recorded, options),
    });
  }

  /** Writes in one revision; null deletes. Resolves when all handlers have been called. */
  async write(entries: Readonly<Record<string, string | null>>): Promise<number> {
    const revision = await writeTo(this.store, entries);
    await this.clock.settle();
    return revision;
  }

  /** Breaks the watch, writes, and compacts the writes, so that the state must be listed again. */
  async gap(...writes: readonly Readonly<Record<string, string | null>>[]): Promise<void> {
    this.store.break();
    for (const entries of writes) await writeTo(this.store, entries);
    await this.store.compact(await this.store.currentRevision());
    await this.clock.elapse(1_000);
  }

  /** The objects in the Indexer. */
  get state(): Record<string, string> {
    return Object.fromEntries(this.informer.indexer.list().map(({ key, value }) => [key, value]));
  }
}

function writeTo(
  store: BreakingStorage,
  entries: Readonly<Record<string, string | null>>,
): Promise<number> {
  return store.txn(
    Object.entries(entries).map(([key, text]) =>
      text === null
        ? { type: "delete" as const, key }
        : { type: "put" as const, key, value: Buffer.from(text) },
    ),
  );
}

/** All objects of a storage, by key. */
export async function stateOf(storage: Storage): Promise<Record<string, string>> {
  const at = { match: "LINEARIZABLE" } as const;
  const { items } = await storage.list({ prefix: "", limit: 0, at });
  return Object.fromEntries(items.map(({ key, value }) => [key, Buffer.from(value).toString()]));
}
