import { beforeEach, describe, expect, it } from "vitest";
import { hasReason } from "../../src/base/errors.ts";
import type { TypedResource } from "../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { Example, eventually } from "./example.ts";
import { Service } from "./service.ts";

let service: Service;
let services: TypedResource<{ selector: string }>;
let pods: TypedResource<object>;
let endpoints: TypedResource<{ addresses: readonly string[] }>;

beforeEach(async () => {
  service = await Service.start("services", "pods", "endpoints");
  services = service.client.resource("services", jsonValues());
  pods = service.client.resource("pods", jsonValues());
  endpoints = service.client.resource("endpoints", jsonValues());
});

async function startController(): Promise<Example> {
  const controller = Example.start("controller/main.ts", [], service.address);
  await controller.said(/has synced/);
  return controller;
}

async function putPod(key: string, app: string, address: string, ready = true): Promise<void> {
  await pods.put(key, { metadata: { labels: { app } }, address, ready });
}

/** The addresses in the endpoints of this key; undefined if the endpoints do not exist. */
async function addressesOf(key: string): Promise<readonly string[] | undefined> {
  try {
    return (await endpoints.get(key)).value.addresses;
  } catch (error) {
    if (hasReason(error, "OBJECT_NOT_FOUND")) return undefined;
    throw error;
  }
}

describe("The controller", () => {
  it("keeps the endpoints of each service: the ready pods of its namespace that it selects", async () => {
    await services.put("ns-1/web", { selector: "app=web" });
    await putPod("ns-1/a", "web", "10.0.0.1:80");
    await putPod("ns-2/b", "web", "10.0.0.2:80");
    await startController();
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);

    await putPod("ns-1/c", "web", "10.0.0.0:80");
    await putPod("ns-1/d", "api", "10.0.0.4:80");
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.0:80", "10.0.0.1:80"]);
    await putPod("ns-1/a", "web", "10.0.0.1:80", false);
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.0:80"]);
    await putPod("ns-1/c", "api", "10.0.0.0:80");
    await eventually(() => addressesOf("ns-1/web"), []);
    await services.put("ns-1/web", { selector: "app in (web, api)" });
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.0:80", "10.0.0.4:80"]);
    await pods.delete("ns-1/d");
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.0:80"]);
    await services.delete("ns-1/web");
    await eventually(() => addressesOf("ns-1/web"), undefined);
  });

  it("corrects changes that others make to its endpoints", async () => {
    await services.put("ns-1/web", { selector: "app=web" });
    await putPod("ns-1/a", "web", "10.0.0.1:80");
    await startController();
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);
    await endpoints.put("ns-1/web", { addresses: ["6.6.6.6:80"] });
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);
    await endpoints.delete("ns-1/web");
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);
    await service.client.put("endpoints", "ns-1/web", Buffer.from("no endpoints"));
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);
    await endpoints.put("ns-1/nobodys", { addresses: ["6.6.6.6:80"] });
    await eventually(() => addressesOf("ns-1/nobodys"), undefined);
  });

  it("compensates for changes while none ran, and writes nothing that is already correct", async () => {
    for (const name of ["gone", "changed", "same"]) {
      await services.put(`ns-1/${name}`, { selector: `app=${name}` });
      await putPod(`ns-1/${name}`, name, "10.0.0.1:80");
    }
    const first = await startController();
    await eventually(() => addressesOf("ns-1/gone"), ["10.0.0.1:80"]);
    await eventually(() => addressesOf("ns-1/changed"), ["10.0.0.1:80"]);
    await eventually(() => addressesOf("ns-1/same"), ["10.0.0.1:80"]);
    const before = await endpoints.get("ns-1/same");
    await first.kill();
    await services.delete("ns-1/gone");
    await putPod("ns-1/changed", "changed", "10.0.0.2:80");

    await startController();
    await eventually(() => addressesOf("ns-1/gone"), undefined);
    await eventually(() => addressesOf("ns-1/changed"), ["10.0.0.2:80"]);
    // The work on a later key begins after all of the first was begun.
    await services.put("ns-1/later", { selector: "app=later" });
    await eventually(() => addressesOf("ns-1/later"), []);
    expect(await endpoints.get("ns-1/same")).toEqual(before);
  });

  it("retries a service that has failed, and continues with the others", async () => {
    const controller = await startController();
    await services.put("ns-1/wrong", { selector: "app in (" });
    await controller.said(/ns-1\/wrong is tried again.*selector/is);
    await services.put("ns-1/right", { selector: "app=web" });
    await eventually(() => addressesOf("ns-1/right"), []);
    await services.put("ns-1/wrong", { selector: "app=web" });
    await eventually(() => addressesOf("ns-1/wrong"), []);
  });

  it("waits for a service that is away, relists one with another store, and ends on SIGTERM", async () => {
    await services.put("ns-1/web", { selector: "app=web" });
    const controller = await startController();
    await eventually(() => addressesOf("ns-1/web"), []);
    await service.kill();
    await controller.said(/"services" can't list or watch, and keeps trying: No response/);
    await service.startAgain();
    await putPod("ns-1/a", "web", "10.0.0.1:80");
    await services.put("ns-1/web", { selector: "app=web" });
    await eventually(() => addressesOf("ns-1/web"), ["10.0.0.1:80"]);
    expect(await controller.stop()).toBe(0);
  });
});
