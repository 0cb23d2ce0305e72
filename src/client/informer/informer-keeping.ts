import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import { emitWarning } from "../../base/warning.ts";
import type { KeptState, StateKeeper } from "../../cache-files/kept-state.ts";
import type { WatchBatch } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";
import { isProvable, unprovable } from "../../reflector/history-tracker.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../../reflector/reflector.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import type { KeepOptions } from "./informer-options.ts";

interface InformerKeepingOptions {
  readonly keep: KeepOptions;
  readonly name: string;
  readonly scope: Scope | undefined;
  /** Where the state is from. */
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger | undefined;
  /** What the state is applied to. */
  readonly target: ReflectorTarget;
  /** Whether a state fits the bound of the informer. */
  readonly fits: (objects: readonly StoredObject[]) => boolean;
}

/** Passes what a Reflector delivers on to the informer, and keeps it on disk for the next start of the program. */
export class InformerKeeping implements ReflectorTarget {
  readonly #options: InformerKeepingOptions;
  #keeper: StateKeeper | undefined;

  constructor(options: InformerKeepingOptions) {
    this.#options = options;
  }

  /** Loads what an earlier process has kept; undefined: nothing, or nothing that can be used. */
  async load(signal: AbortSignal): Promise<KeptState | undefined> {
    const { keep, name, scope = { prefix: "" }, storage, clock, fits } = this.#options;
    const logger = this.#options.logger ?? warningsOf(name);
    const { folder, source = name, credentials } = keep;
    try {
      // Not before, so that an informer without it needs no file system, which bundles for browsers don't have.
      const { FileStateKeeper } = await import("../../cache-files/state-keeper.ts");
      const { userOf } = await import("../../cache-files/user-of.ts");
      const user = await userOf((await credentials?.(signal)) ?? {}, source);
      signal.throwIfAborted();
      const identity = { source, scope: JSON.stringify(scope), user };
      this.#keeper = new FileStateKeeper({ folder, name, identity, windowBytes: 0, clock, logger });
    } catch (error) {
      signal.throwIfAborted();
      logger.warn({ problem: messageOf(error) }, "can't keep the state of an informer on disk");
      return undefined;
    }
    const kept = await this.#keeper.load(signal);
    if (kept === undefined) return undefined;
    if (isProvable(kept, storage) && fits(kept.objects)) return kept;
    const problem = isProvable(kept, storage) ? "it is larger than maxBytes" : unprovable;
    logger.warn({ folder, problem }, "a kept state is not used; nothing is loaded");
    return undefined;
  }

  replace(state: ListedState, cause: ReplaceCause): void {
    this.#options.target.replace(state, cause);
    if (state.kept === undefined) this.#keeper?.replace(state);
  }

  apply(batch: WatchBatch): void {
    this.#options.target.apply(batch);
    this.#keeper?.append(batch);
  }

  identify(historyId: string): void {
    this.#options.target.identify?.(historyId);
    this.#keeper?.identify(historyId);
  }

  invalidate(): void {
    this.#keeper?.invalidate();
  }

  /** Writes what it has, for up to some seconds. Idempotent. */
  async close(): Promise<void> {
    await this.#keeper?.close();
  }
}

/** For programs without a logger. */
function warningsOf(name: string): Logger {
  const ignore = (): void => {};
  const warn = (fields: object, text: string): void => {
    const problem = "problem" in fields ? `: ${fields.problem}` : "";
    emitWarning(`The informer ${JSON.stringify(name)}: ${text}${problem}`, "InformerWarning");
  };
  return { info: ignore, warn, error: warn };
}
