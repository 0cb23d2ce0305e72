import type { Command } from "commander";

/** Adds `serve`. */
export function addServeCommand(program: Command): void {
  program.command("serve").description("Run the service.");
}
