import { describe, expect, test } from "vitest";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { ScriptedResource } from "../../server/scripted-resource.ts";
import { serve } from "../../server/served.ts";
import { type Outcome, run } from "./client-terminal.ts";

describe("health", () => {
  async function asked(resource: ScriptedResource, ...args: readonly string[]): Promise<Outcome> {
    const { server } = await serve(new Map([["things", resource]]), new ManualTimers());
    return run(["health", ...args, "--address", `127.0.0.1:${server.port}`]);
  }

  test.each([[[]], [["resource/things"]], [["--resource", "things"]]])(
    "succeeds while the service serves: %j",
    async (args) => {
      const resource = new ScriptedResource();
      expect(await asked(resource, ...args)).toEqual({ code: 0, stdout: "SERVING\n", stderr: "" });
    },
  );

  test("fails while it does not", async () => {
    const resource = new ScriptedResource();
    resource.ready = false;
    expect(await asked(resource)).toEqual({ code: 5, stdout: "NOT_SERVING\n", stderr: "" });
  });

  test("fails if there is no such service, or no server", async () => {
    for (const args of [["resource/others"], ["--resource", "others"]]) {
      const unknown = await asked(new ScriptedResource(), ...args);
      expect(unknown).toMatchObject({ code: 3, stdout: "" });
      expect(unknown.stderr).toContain('no service "resource/others"');
    }
    const none = await run(["health", "--address", "127.0.0.1:1", "--timeout", "1s"]);
    expect(none).toMatchObject({ code: 5, stdout: "" });
  });
});
