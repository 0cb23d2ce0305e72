import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const guide = readFileSync("docs/client-guide.md", "utf8");
const snippets = [...guide.matchAll(/```ts\n(.*?)```/gs)].map(([, code]) => code);
const [, output = ""] = /client-guide\/main\.ts\n(.*?)```/s.exec(guide) ?? [];

describe("The client guide", () => {
  it("consists of the snippets of its example, in order", () => {
    const source = readFileSync("examples/client-guide/main.ts", "utf8");
    expect(source.slice(source.indexOf("import "))).toBe(snippets.join("\n"));
  });

  it("shows the output of its example", async () => {
    const service = await Service.start();
    const example = Example.start("client-guide/main.ts", [], service.address);
    expect([await example.ended(), example.output]).toEqual([0, output]);
  });
});
