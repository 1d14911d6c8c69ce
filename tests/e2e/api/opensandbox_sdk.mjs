// SPDX-License-Identifier: Apache-2.0
// OpenSandbox's own SDK, as a user of it writes: argv has the lifecycle server and two names. A line of JSON for each step;
// the next one begins when a line comes on standard input.
import { createInterface } from "node:readline";
import { Sandbox } from "@alibaba-group/opensandbox";

const [domain, allowed, other] = process.argv.slice(2);
const orders = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async (value) => {
  console.log(JSON.stringify(value));
  await orders.next();
};

const sandbox = await Sandbox.create({
  connectionConfig: { domain, protocol: "http", apiKey: "key", requestTimeoutSeconds: 60 },
  image: "app:test", entrypoint: ["sleep", "600"], timeoutSeconds: 600, env: { A: "b" }, metadata: { name: "n" },
  networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: allowed }] },
});
await told(await sandbox.getEgressPolicy());
await sandbox.patchEgressRules([{ action: "allow", target: other }, { action: "deny", target: allowed }]);
await told(await sandbox.getEgressPolicy());
await sandbox.deleteEgressRules([other, "nonexistent.test"]);
await sandbox.deleteEgressRules([other]);
await told(await sandbox.getEgressPolicy());
try {
  await sandbox.patchEgressRules([{ action: "block", target: other }]);
  await told("taken");
} catch (error) {
  await told({ refused: error.constructor.name, status: error.statusCode, text: String(error.message) });
}
await sandbox.kill();
await sandbox.close();
process.exit(0);
