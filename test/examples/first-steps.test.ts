import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { Example, node } from "./example.ts";
import { Service } from "./service.ts";

const readme = readFileSync("README.md", "utf8");
const [, inReadme = ""] = /```ts\n(import .*?)```/s.exec(readme) ?? [];
const [, output = ""] = /first-steps\/main\.ts\n(.*?)```/s.exec(readme) ?? [];

it("The README has the first steps as they are run.", () => {
  const source = readFileSync("examples/first-steps/main.ts", "utf8");
  expect(source.slice(source.indexOf("import "))).toBe(inReadme);
});

it("The first steps say what the README says.", { timeout: 70_000 }, async () => {
  const service = await Service.start();
  // Who does all that the README does, in its order, has something there by then that is no pod.
  await service.client.put("default", "ns-1/pod-7", Buffer.from("hello"));
  const program = inReadme.replace("127.0.0.1:50051", service.address);
  const example = new Example([...node, "--input-type=module-typescript", "--eval", program]);
  await example.said(/Running\n/);
  expect(example.output).toBe(output);
});
