import { describe, expect, it } from "vitest";
import { diffStates } from "../../../src/cacher/state/diff.ts";
import { compareKeys } from "../../../src/model/key-order.ts";
import { StoredObject } from "../../../src/model/object.ts";
import fc from "../../property.ts";
import { cornerText, object } from "../objects.ts";

/** Objects from texts such as `a@5`, each with the revision as its content. */
function state(revision: number, ...stands: readonly string[]) {
  const objects = stands.map((each) => {
    const [key = "", at = ""] = each.split("@");
    return object(key, Number(at), at);
  });
  return { objects, revision };
}

function difference(before: ReturnType<typeof state>, after: ReturnType<typeof state>) {
  return diffStates(before, after)?.map(({ event, previous }) => {
    const was = previous === undefined ? "" : ` (${previous.modRevision})`;
    return `${event.type} ${event.object.key}@${event.revision}${was}`;
  });
}

describe("The difference of two states", () => {
  it.each([
    ["empty for equal states", state(5, "a@2", "b@5"), state(9, "a@2", "b@5"), []],
    [
      "all objects from an empty state",
      state(5),
      state(9, "a@6", "b@7"),
      ["ADDED a@6", "ADDED b@7"],
    ],
    [
      "deleted objects, at the revision of the later state",
      state(5, "a@2", "b@3"),
      state(9),
      ["DELETED a@9 (2)", "DELETED b@9 (3)"],
    ],
    [
      "changed objects by mod_revision, then deleted ones",
      state(5, "a@2", "b@3", "c@4", "d@5"),
      state(9, "b@8", "c@4", "d@7", "e@6", "f@9"),
      ["ADDED e@6", "MODIFIED d@7 (5)", "MODIFIED b@8 (3)", "ADDED f@9", "DELETED a@9 (2)"],
    ],
    [
      "the changes of one transaction in key order",
      state(5, "b@3"),
      state(9, "a@7", "b@7", "c@7"),
      ["ADDED a@7", "MODIFIED b@7 (3)", "ADDED c@7"],
    ],
  ])("is %s", (_what, before, after, expected) => {
    expect(difference(before, after)).toEqual(expected);
  });

  it("contains deleted objects with their last content", () => {
    const [gone] = diffStates(state(5, "a@2"), state(9)) ?? [];
    expect(gone?.event.object).toMatchObject({ modRevision: 9, createRevision: 2, version: 1 });
    expect(Buffer.from(gone?.event.object.value ?? []).toString()).toBe("2");
  });

  it.each([
    ["an object that the earlier one lacks", state(5), state(9, "a@4")],
    ["an object in another state", state(5, "a@3"), state(9, "a@4")],
    ["an object that is newer in the earlier one", state(5, "a@4"), state(9, "a@3")],
  ])(
    "is unknown if the later state has, from before the earlier one, %s",
    (_what, before, after) => {
      expect(difference(before, after)).toBeUndefined();
    },
  );

  /** An object `a`, created at 3 and written again at 4, which is in both states. */
  const a = { value: "x", created: 3, written: 4, version: 2, lease: 7n };

  function stateOf(revision: number, { value, created, written, version, lease }: typeof a) {
    const one = new StoredObject("a", Buffer.from(value), created, written, version, lease);
    return { objects: [one], revision };
  }

  it.each<[what: string, later: Partial<typeof a>, follows: boolean]>([
    ["the same", {}, true],
    ["other content at the same revision", { value: "y" }, false],
    ["content of another length", { value: "xy" }, false],
    ["another version at the same revision", { version: 3 }, false],
    ["another lease at the same revision", { lease: 8n }, false],
    ["another creation at the same revision", { created: 2 }, false],
    ["written again since", { written: 8, version: 3, value: "z", lease: 0n }, true],
    ["written since, as if for the first time", { written: 8, version: 2 }, false],
    [
      "written since, and created at another revision before",
      { written: 8, version: 9, created: 2 },
      false,
    ],
    ["deleted and created again since", { written: 8, created: 7, version: 2 }, true],
  ])("with an object in the later state that is %s: %o, is known: %s", (_what, later, follows) => {
    const found = diffStates(stateOf(5, a), stateOf(9, { ...a, ...later }));
    expect(found !== undefined).toBe(follows);
  });

  it("is unknown if the later state has an object that was created before, and is absent in the earlier one", () => {
    expect(diffStates(state(5), stateOf(9, { ...a, written: 8 }))).toBeUndefined();
    expect(diffStates(state(5), stateOf(9, { ...a, created: 6, written: 8 }))).toHaveLength(1);
  });

  it("leads from one to the other for any two states", () => {
    const stands = fc.uniqueArray(fc.tuple(cornerText(1, 3), fc.integer({ min: 6, max: 9 })), {
      selector: ([key]) => key,
      maxLength: 8,
    });
    fc.assert(
      fc.property(stands, stands, (were, are) => {
        const sorted = (all: Map<string, StoredObject>) =>
          [...all.values()].sort((a, b) => compareKeys(a.key, b.key));
        const before = new Map(were.map(([key]) => [key, object(key, 5)]));
        const after = new Map(are.map(([key, at]) => [key, before.get(key) ?? object(key, at)]));
        for (const [key, at] of are) if (at > 7) after.set(key, object(key, at));
        const steps = diffStates(
          { objects: sorted(before), revision: 5 },
          { objects: sorted(after), revision: 9 },
        );
        const reached = new Map(before);
        for (const { event, previous } of steps ?? []) {
          expect(previous).toBe(reached.get(event.object.key));
          if (event.type === "DELETED") reached.delete(event.object.key);
          else reached.set(event.object.key, event.object);
        }
        expect(sorted(reached)).toEqual(sorted(after));
        const revisions = steps?.map(({ event }) => event.revision) ?? [];
        expect(revisions).toEqual([...revisions].sort((a, b) => a - b));
      }),
    );
  });
});
