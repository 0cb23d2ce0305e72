import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/base/clock.ts";
import { PassingFailure } from "../../src/base/watched-files.ts";
import { parsePolicyInThread } from "../../src/config/parse-policy-in-thread.ts";
import { FakeClock } from "../fake-clock.ts";

const parse = (content: string, clock = systemClock) =>
  parsePolicyInThread("policy.yaml", Buffer.from(content), clock);

describe("A policy parsed in a thread", () => {
  test("is the same as without", async () => {
    expect(await parse("roles: []\nbindings: []\n")).toEqual({
      definition: { roles: [], bindings: [] },
    });
    expect(await parse("roles: 7\nbindings: []\n")).toEqual({
      problems: ["policy.yaml:1: roles: 7 is not a list of roles."],
    });
  });

  test("does not hold the event loop", async () => {
    const role = (index: number): string =>
      `  - { name: r${index}, rules: [{ resources: [a], prefixes: [b/], verbs: [get] }] }\n`;
    const roles = Array.from({ length: 2_000 }, (_, index) => role(index)).join("");
    let turns = 0;
    let isDone = false;
    const turn = (): void => {
      turns++;
      if (!isDone) setImmediate(turn);
    };
    setImmediate(turn);
    const { definition } = await parse(`roles:\n${roles}bindings: []\n`);
    isDone = true;
    expect(definition?.roles).toHaveLength(2_000);
    expect(turns).toBeGreaterThan(20);
  });

  test("is refused if that takes too long", async () => {
    const clock = new FakeClock();
    const parsed = parse("roles: []\nbindings: []\n", clock);
    clock.advance(30_000);
    await expect(parsed).rejects.toThrow("policy.yaml: took longer than 30 s to parse.");
    await expect(parsed).rejects.toBeInstanceOf(PassingFailure);
  });
});
