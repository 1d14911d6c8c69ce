// SPDX-License-Identifier: Apache-2.0
// lookup HOW NAME… - Node's resolvers: "libc" asks getaddrinfo(), "cares" the one of its
// own; one line per name, as lookup.c prints it.
import dns from 'node:dns/promises';

const [how, ...names] = process.argv.slice(2);

async function ask(name) {
  if (how === 'libc')
    return (await dns.lookup(name, {all: true})).map((found) => found.address);
  const both = await Promise.allSettled([dns.resolve4(name), dns.resolve6(name)]);
  return both.flatMap((found) => found.status === 'fulfilled' ? found.value : []);
}

for (const name of names) {
  const from = performance.now();
  const found = await ask(name).catch(() => []);
  const ms = Math.round(performance.now() - from);
  console.log([ms, ...(found.length > 0 ? found : ['failed'])].join(' '));
}
