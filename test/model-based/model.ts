import {
  type Change,
  type SeenEvent,
  type SeenObject,
  stateAt,
  type View,
} from "../guarantees/recording.ts";
import { type ModelRequirement, modelMatches } from "../selector/label-model.ts";

/** A value to write, one character per byte; null deletes. */
export type Entry = readonly [key: string, value: string | null];

/**
 * The simplest possible store: the list of all changes, from which every response is computed. Its responses define the
 * contract.
 */
export class Model {
  readonly changes: Change[] = [];
  /** The newest revision. An empty store is at 1. */
  revision = 1;

  /** Applies one transaction at `revision`; default: the next one. Without a change it takes no revision. */
  write(entries: readonly Entry[], revision: number = this.revision + 1): void {
    const state = stateAt(this.changes, this.revision);
    for (const [key, value] of entries) {
      const before = state.get(key);
      if (value === null && before === undefined) continue;
      const { createRevision = revision, version = 0 } = before ?? {};
      const after =
        value === null
          ? undefined
          : { key, value, createRevision, modRevision: revision, version: version + 1 };
      this.changes.push({ revision, key, before, after });
      this.revision = revision;
    }
  }

  list(view: View, revision: number): SeenObject[] {
    return [...stateAt(this.changes, revision).values()]
      .filter((object) => view.includes(object.key) && view.matches(object))
      .sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
  }

  /** The events after `after`, up to `upTo`. */
  watch(view: View, after: number, upTo: number): SeenEvent[] {
    const events: SeenEvent[] = [];
    for (const { revision, key, before, after: now } of this.changes) {
      if (revision <= after || revision > upTo || !view.includes(key)) continue;
      const previous = view.includePrevious ? before : undefined;
      const was = before !== undefined && view.matches(before);
      const is = now !== undefined && view.matches(now);
      if (is) events.push({ type: was ? "MODIFIED" : "ADDED", object: now, previous });
      else if (was)
        events.push({ type: "DELETED", object: { ...before, modRevision: revision }, previous });
    }
    return events;
  }

  /** The smallest revision that a watch can resume from, with an event window of `maxEvents` begun after `start`. */
  oldestResumable(start: number, maxEvents: number, upTo: number): number {
    const events = this.changes.filter(({ revision }) => revision > start && revision <= upTo);
    return events.at(-maxEvents - 1)?.revision ?? start;
  }
}

export interface ModelSelector {
  readonly labels: readonly ModelRequirement[];
  readonly fields: readonly {
    readonly field: ModelField;
    readonly operator: "=" | "==" | "!=";
    readonly value: string;
  }[];
}

export const modelFields = ["phase", "spec.node"] as const;
export type ModelField = (typeof modelFields)[number];

export function selects({ labels, fields }: ModelSelector, object: SeenObject): boolean {
  const attributes = attributesOf(object.value);
  return (
    modelMatches(labels, attributes.labels) &&
    fields.every(({ field, operator, value }) => {
      return (attributes.fields[field] === value) === (operator !== "!=");
    })
  );
}

/** The labels and fields of a value: none if it is not JSON. */
function attributesOf(value: string): {
  readonly labels: ReadonlyMap<string, string>;
  readonly fields: Readonly<Record<ModelField, string>>;
} {
  const said = parsed(value);
  return {
    labels: new Map(Object.entries(said.metadata?.labels ?? {})),
    fields: { phase: String(said.phase ?? ""), "spec.node": String(said.spec?.node ?? "") },
  };
}

/** The JSON values that the tests write. */
export interface ModelValue {
  readonly metadata?: { readonly labels?: Readonly<Record<string, string>> };
  readonly phase?: string | number | boolean | null;
  readonly spec?: { readonly node?: string | number | boolean | null };
}

function parsed(value: string): ModelValue {
  try {
    return JSON.parse(value);
  } catch {
    return {};
  }
}
