import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { Example, node } from "./example.ts";
import { Service } from "./service.ts";

const readme = readFileSync("README.md", "utf8");
const [, inReadme = ""] = /```ts\n(import .*?)```/s.exec(readme) ?? [];
const [, output = ""] = /first-steps\/main\.ts\n(.*?)```/s.exec(readme) ?? [];

it("The README has the source of the first steps.", () => {
  const source = readFileSync("examples/first-steps/main.ts", "utf8");
  expect(source.slice(source.indexOf("import "))).toBe(inReadme);
});

it("The first steps print what the README shows.", async () => {
  const service = await Service.start();
  // After the earlier steps of the README there is an object that is not a pod.
  await service.client.put("default", "ns-1/pod-7", Buffer.from("hello"));
  const program = inReadme.replace("127.0.0.1:50051", service.address);
  const example = new Example([...node, "--input-type=module-typescript", "--eval", program]);
  await example.said(/Running\n/);
  expect(example.output).toBe(output);
});
