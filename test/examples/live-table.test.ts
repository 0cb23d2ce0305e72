import { execFile } from "node:child_process";
import { promisify, stripVTControlCharacters } from "node:util";
import { describe, expect, it } from "vitest";
import type { TypedResource } from "../../src/client/typed/typed-resource.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { Example, eventually, exampleCommand } from "./example.ts";
import { Service } from "./service.ts";

const script = "live-table/main.ts";

async function start(): Promise<{ service: Service; values: TypedResource<unknown> }> {
  const service = await Service.start();
  return { service, values: service.client.resource("default", jsonValues()) };
}

describe("The live table", () => {
  it("prints each change as a line without a terminal", async () => {
    const { service, values } = await start();
    await values.put("ns-1/a", "\x1b[31mred\u2028");
    await values.put("ns-2/b", 1);
    const example = Example.start(script, ["default", "ns-1/"], service.address);
    await example.said(/\n/);
    await values.put("ns-1/c", 2);
    await values.put("ns-1/c", 3);
    await values.delete("ns-1/c");
    await example.said(/DELETED/);
    expect(example.lines).toEqual([
      '2 ADDED ns-1/a "\\u001b[31mred·"',
      "4 ADDED ns-1/c 2",
      "5 MODIFIED ns-1/c 3",
      "6 DELETED ns-1/c 3",
    ]);
    expect(await example.stop()).toBe(0);
  });

  it("reports that the service is away, and that it is back", async () => {
    const { service, values } = await start();
    await values.put("a", 1);
    const example = Example.start(script, ["default"], service.address);
    await example.said(/ADDED a/);
    await service.kill();
    await example.said(/No response/);
    await service.startAgain();
    await example.said(/The watch is current again\./);
    expect(await example.stop()).toBe(0);
  });

  // `script` of util-linux provides the terminal.
  it.runIf(process.platform === "linux")(
    "is drawn on a terminal, fits it when that is resized, and restores it",
    async () => {
      const { service, values } = await start();
      for (const name of ["a", "b", "c", "d", "e"]) await values.put(`ns-1/${name}`, name);
      const command = exampleCommand(script, ["default"]).join(" ");
      const inTerminal = `tty; stty rows 6 cols 80; exec ${command}`;
      const table = new Example(["script", "-qefc", inTerminal, "/dev/null"], service.address);
      const [terminal] = await table.said(/\/dev\/pts\/\d+/);
      await eventually(
        () => screenOf(table),
        [
          "default: 5 objects at revision 6, 1 below",
          "KEY     REVISION  VERSION  VALUE",
          'ns-1/a  2         1        "a"',
          'ns-1/b  3         1        "b"',
          'ns-1/c  4         1        "c"',
          'ns-1/d  5         1        "d"',
        ],
      );
      await promisify(execFile)("stty", ["-F", terminal, "rows", "4"]);
      await values.put("ns-1/b", "new");
      await values.delete("ns-1/a");
      await eventually(
        () => screenOf(table),
        [
          "default: 4 objects at revision 8, 2 below",
          "KEY     REVISION  VERSION  VALUE",
          'ns-1/b  7         2        "new"',
          'ns-1/c  4         1        "c"',
        ],
      );
      await service.kill();
      await eventually(() => /revision 8.*No response/.test(screenOf(table)[0] ?? ""), true);
      // Ctrl-C
      table.type("\x03");
      expect(await table.ended()).toBe(0);
      expect(table.output.endsWith("\x1b[?7h\x1b[?25h\x1b[?1049l")).toBe(true);
    },
  );
});

/** The lines of the last drawing. */
function screenOf(table: Example): string[] {
  const frames = table.output.split("\x1b[H");
  const drawn = frames.findLast((frame, at) => at > 0 && frame.includes("\x1b[J")) ?? "";
  const [frame = ""] = drawn.split("\x1b[J");
  return stripVTControlCharacters(frame).split(/\r?\n/);
}
