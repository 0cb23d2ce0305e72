import { pino } from "pino";
import { type EventType, WatchBatch, WatchEvent } from "../../src/model/event.ts";
import { StoredObject } from "../../src/model/object.ts";
import {
  type ListedState,
  Reflector,
  type ReflectorOptions,
  type ReflectorTarget,
  type ReplaceCause,
} from "../../src/reflector/reflector.ts";
import type { Storage } from "../../src/storage/storage.ts";
import { FakeClock } from "../fake-clock.ts";

const silent = pino({ level: "silent" });

/** A Reflector over `storage`, on a clock that the test advances, and the calls of its target. */
export class Reflected {
  readonly clock: FakeClock;
  readonly reflector: Reflector;
  /** The target's calls, one line each. */
  readonly heard: string[] = [];
  /** Called at each call of the target, after it has been recorded. */
  onHeard: () => void = () => {};
  /** How `run` ended: "stopped", or its error; undefined while it runs. */
  outcome: unknown;

  constructor(storage: Storage, options: Partial<ReflectorOptions> = {}) {
    this.clock = options.clock instanceof FakeClock ? options.clock : new FakeClock();
    this.reflector = new Reflector({
      storage,
      target: this.#target(),
      logger: silent,
      random: () => 0,
      ...options,
      clock: this.clock,
    });
  }

  /** Runs until it waits for something. */
  async begin(): Promise<void> {
    this.reflector.run().then(
      () => {
        this.outcome = "stopped";
      },
      (error: unknown) => {
        this.outcome = error;
      },
    );
    await this.clock.settle();
  }

  #target(): ReflectorTarget {
    return {
      replace: (state, cause) => this.#hear(replaced(state, cause)),
      apply: (batch) => this.#hear(applied(batch)),
    };
  }

  #hear(line: string): void {
    this.heard.push(line);
    this.onHeard();
  }
}

function replaced({ objects, revision, current }: ListedState, cause: ReplaceCause): string {
  const keys = objects.map(({ key, modRevision }) => `${key}@${modRevision}`);
  return `${cause}: [${keys.join(" ")}] →${revision} of ${current}`;
}

function applied({ events, revision }: WatchBatch): string {
  const all = events.map(({ type, object }) => `${type} ${object.key}@${object.modRevision}`);
  return [...all, `→${revision}`].join(" ");
}

export function object(key: string, revision: number): StoredObject {
  return new StoredObject(key, Buffer.from(""), revision, revision, 1, 0n);
}

/** A batch with the resume point `revision`, of events `[type, key, revision]`. */
export function batch(
  revision: number,
  ...events: readonly (readonly [type: EventType, key: string, revision: number])[]
): WatchBatch {
  return new WatchBatch(
    revision,
    events.map(([type, key, at]) => new WatchEvent(type, object(key, at), undefined)),
  );
}
