import { afterAll, beforeAll, describe, expect, test } from "vitest";
import * as sources from "../../src/testing/index.ts";
import { InstalledApp } from "./installed-app.ts";

let app: InstalledApp;

beforeAll(async () => {
  app = await InstalledApp.with("watch-fanout");
});

afterAll(() => app.remove());

describe("watch-fanout/testing, as it is published", () => {
  test("exports what src/testing/index.ts does", async () => {
    const names = await app.evaluate(`
      import * as exported from "watch-fanout/testing";
      console.log(JSON.stringify(Object.keys(exported)));
    `);
    expect(names).toEqual(Object.keys(sources).sort());
  });

  test("starts a service, prints nothing, and does not keep the process alive", async () => {
    const seen = await app.evaluate(`
      import { hasReason, jsonValues } from "watch-fanout/client";
      import { startTestService } from "watch-fanout/testing";
      const service = await startTestService({ resources: ["pods"] });
      const pods = service.client.resource("pods", jsonValues());
      await pods.put("a", { n: 1 });
      service.conflict("pods", "a");
      const put = pods.put("a", { n: 2 }, { expectedModRevision: 2 });
      const isConflict = await put.catch((error) => hasReason(error, "REVISION_CONFLICT"));
      const { value } = await pods.get("a");
      console.log(JSON.stringify({ value, isConflict }));
      // It is not closed.
    `);
    expect(seen).toEqual({ value: { n: 1 }, isConflict: true });
  });

  test("has types that check", async () => {
    for (const name of ["pino", "@types/node"]) await app.link(name);
    const errors = await app.typeErrors(
      'import { startTestService, TestClock, until } from "watch-fanout/testing";\n' +
        "const clock = new TestClock();\n" +
        'const service = await startTestService({ resources: ["pods"], clock });\n' +
        'export const address: string = await until("it", () => service.address);\n' +
        "export const revision: string = await service.settled();\n",
    );
    expect(errors).toEqual([expect.stringMatching(/^use\.ts\(5,14\): error TS2322: /)]);
  });
});
