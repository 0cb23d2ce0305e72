import { expect, it } from "vitest";
import { Example } from "./example.ts";
import { Service } from "./service.ts";

const bytes = Buffer.from("a value of some length");

it("The dashboard counts the objects of each namespace by their keys, also after a loss of the store", async () => {
  const service = await Service.start();
  const { client } = service;
  const put = (key: string) => client.put("default", key, bytes);
  for (const key of ["ns-1/a", "ns-1/b", "ns-2/a"]) await put(key);
  const example = Example.start("dashboard/main.ts", ["default"], service.address);
  await example.said(/ns-2 1/);
  expect(example.lines).toEqual(["ns-1 2", "ns-2 1"]);
  // No count changes.
  await put("ns-2/a");
  await put("ns-2/b");
  await example.said(/ns-2 2/);
  await client.delete("default", "ns-1/a");
  await example.said(/ns-1 1/);
  expect(example.lines.slice(2)).toEqual(["ns-2 2", "ns-1 1"]);
  await service.kill();
  await service.startAgain();
  await example.said(/ns-1 0\nns-2 0/);
  expect(await example.stop()).toBe(0);
});
