/** A worker of port-sharing.ts: accepts connections, or gets them from its parent, and sends its process id on each. */
import { createServer, Socket } from "node:net";

function serve(socket: Socket): void {
  socket.on("error", () => {});
  socket.write(`${process.pid}\n`);
  socket.resume();
}

if (import.meta.main) {
  const [, , way, port] = process.argv;
  process.on("disconnect", () => process.exit());
  if (way === "handed over") {
    process.on("message", (_message, socket) => {
      process.send?.("taken");
      if (socket instanceof Socket) serve(socket);
    });
    process.send?.("ready");
  } else {
    const listen = { host: "127.0.0.1", port: Number(port), reusePort: way === "reusePort" };
    createServer(serve).listen(listen, () => process.send?.("ready"));
  }
}
