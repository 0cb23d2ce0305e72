import type { Command, Option } from "commander";
import { optionNames } from "../../config/options.ts";
import { configFlag, readConfig, serveFlag } from "./serve-flags.ts";

const helpFooter = `
Every option is also an environment variable (--etcd-ca is WATCH_FANOUT_ETCD_CA) and a key of the file
(etcd-ca). A flag takes precedence over a variable, a variable over the file. The etcd password has no
flag: use WATCH_FANOUT_ETCD_PASSWORD, etcd-password in the file, or --etcd-password-file.

While etcd, or the upstream of a relay, is unreachable the service runs, is not ready (/readyz has the reason) and retries.
SIGTERM and SIGINT shut it down gracefully, and so does closing its terminal. A second signal ends it at once. Files that
change are read without a signal.

Examples:
  watch-fanout serve
  watch-fanout serve --etcd http://127.0.0.1:2379 --resource services=/services/
  watch-fanout serve --upstream 127.0.0.1:50051 --listen 127.0.0.1:50052 --admin 127.0.0.1:8082
`;

/** Adds `serve`, with a flag for every option of the configuration. */
export function addServeCommand(program: Command): void {
  const flags = new Map<string, Option>([["config", configFlag()]]);
  for (const name of optionNames) {
    const option = serveFlag(name);
    if (option !== undefined) flags.set(name, option);
  }
  const command = program
    .command("serve")
    .description(
      "Serve resources of etcd, of another watch-fanout, or of an embedded store, until SIGTERM or SIGINT.",
    )
    .addHelpText("after", helpFooter);
  for (const option of flags.values()) command.addOption(option);
  command.action(async () => {
    const typed = [...flags].map(([name, option]) => [
      name,
      command.getOptionValue(option.attributeName()),
    ]);
    const loaded = readConfig(command, Object.fromEntries(typed));
    // Imported here, since the client commands start faster without the server.
    const { serve } = await import("./serve.ts");
    await serve(loaded);
  });
}
