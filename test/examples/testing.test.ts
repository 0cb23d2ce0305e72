import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import "../../examples/testing/scheduler.test.ts";
import { Example, node } from "./example.ts";

const page = readFileSync("docs/testing-controllers.md", "utf8");
const snippets = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);

describe("Test your controller", () => {
  it.each([
    [0, "scheduler.test.ts"],
    [1, "scheduler.node.ts"],
  ])("has the source of its example, snippet %i", (at, file) => {
    expect(snippets[at]).toBe(readFileSync(`examples/testing/${file}`, "utf8"));
  });

  it("has a test for node:test, which passes", async () => {
    const example = new Example([...node, "--test", "examples/testing/scheduler.node.ts"]);
    expect([await example.ended(), example.output]).toEqual([0, expect.stringMatching(/pass 1\n/)]);
  });
});
