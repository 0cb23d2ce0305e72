import type { Step } from "./trace.ts";
import type { Fields, Value } from "./values.ts";

type Begun = Step & { readonly step: "write" };
type Written = Step & { readonly step: "written" };

/** What the writes of a trace need of the model. */
interface WrittenModel {
  /** Returns whether the model can take the action. */
  act(action: string, ...args: readonly Value[]): boolean;
  /** The last write. */
  write(): Fields;
  /** The revision of an object in etcd; 0: it does not exist. */
  mod(key: number): number;
}

/**
 * Follows the writes of a trace, one after the other. In the model each has an expectation: a write without one reads the
 * object just before etcd does it.
 */
export class FollowedWrites {
  readonly #model: WrittenModel;
  /** The one that is under way, and how it ends. */
  #step: Begun | undefined;
  #written: Written | undefined;
  #isBegun = false;

  constructor(model: WrittenModel) {
    this.#model = model;
  }

  /** Returns why the model can't; undefined: it can. */
  begin(step: Begun, written: Written | undefined): string | undefined {
    this.#step = step;
    this.#written = written;
    this.#isBegun = false;
    const why = step.creates ? this.#begin(step) : undefined;
    this.refuse();
    return why;
  }

  /** etcd does it. */
  commit({ matching, removed }: Step & { readonly step: "commit" }): string | undefined {
    const step = this.#step;
    if (step === undefined) return "no write is under way";
    if (removed.length > 0 || matching.join() !== String(step.key)) return "it writes other keys";
    const why = this.#begin(step);
    if (why !== undefined) return why;
    const isDone = this.#model.act("etcdWrites") && this.#model.write()["phase"] === "applied";
    return isDone ? undefined : "etcd can't have done it";
  }

  /** Lets etcd refuse it, if that is how it ends: etcd's state may be another one later. */
  refuse(): void {
    const { phase } = this.#model.write();
    if (this.#step === undefined || !this.#isBegun || phase !== "sent") return;
    if (this.#written?.isConflict !== true) return;
    if (this.#model.mod(this.#step.key) !== 0) this.#model.act("etcdWrites");
  }

  end({ outcome, revision, isConflict }: Written): string | undefined {
    const step = this.#step;
    if (step === undefined) return "no write is under way";
    this.#step = undefined;
    const why = this.#begin(step);
    if (why !== undefined) return why;
    const { act } = this.#model;
    if (outcome === "unknown") return act("loseResponse") ? undefined : "it was answered";
    const isUnsent = outcome === "refused" && !isConflict;
    if (isUnsent) return act("refuseWrite") ? undefined : "etcd has done it";
    if (!act("answerWrite")) return "etcd has not answered it";
    const known = this.#model.write();
    const isRight =
      known["outcome"] === outcome && (revision ?? known["revision"]) === known["revision"];
    return isRight ? undefined : `it was ${known["outcome"]} at ${known["revision"]}`;
  }

  /** No effect if it has begun. */
  #begin({ key, creates }: Begun): string | undefined {
    if (this.#isBegun) return undefined;
    this.#isBegun = this.#model.act("beginWrite", key, creates);
    return this.#isBegun ? undefined : "it can't begin";
  }
}
