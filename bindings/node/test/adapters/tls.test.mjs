// rediss:// URLs, and what can go wrong with them.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";
import { freePort, startRedis } from "../support/redis.mjs";
import { test } from "../support/test.mjs";
import { awake } from "../support/wait.mjs";
import { opened } from "./kinds.mjs";

const folder = mkdtempSync(join(tmpdir(), "leasehold-tls-"));
const file = (name) => join(folder, name);
const openssl = (...args) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
const ecdsa = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

function authority(name) {
  openssl("req", "-x509", ...ecdsa, "-keyout", `${name}.key`, "-out", `${name}.pem`, "-subj", `/CN=${name}`);
}

/** Makes a certificate and its key, in NAME.pem and NAME.key. */
function sign(name, ca, { of = "IP:127.0.0.1,DNS:localhost", usage = "serverAuth", days = "7" } = {}) {
  writeFileSync(file(`${name}.ext`), `subjectAltName=${of}\nextendedKeyUsage=${usage}\n`);
  openssl("req", ...ecdsa, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
  const signed = ["-CA", `${ca}.pem`, "-CAkey", `${ca}.key`, "-CAcreateserial", "-extfile", `${name}.ext`, "-days", days];
  openssl("x509", "-req", "-in", `${name}.csr`, "-out", `${name}.pem`, ...signed);
}

const servers = [];
/** Starts a server with that certificate. Its `tls` is the port. */
async function start(name, asks = "no") {
  const tls = await freePort();
  const config = [
    `tls-port ${tls}`,
    `tls-cert-file ${file(`${name}.pem`)}`,
    `tls-key-file ${file(`${name}.key`)}`,
    `tls-ca-cert-file ${file("ours.pem")}`,
    `tls-auth-clients ${asks}`,
  ];
  const server = await startRedis({ config });
  servers.push(server);
  return { port: server.port, tls };
}

let good;
let other;
let expired;
let asking;

before(async () => {
  authority("ours");
  authority("stranger");
  sign("good", "ours");
  sign("other", "ours", { of: "DNS:redis.internal" });
  sign("expired", "ours", { days: "-1" });
  sign("client", "ours", { usage: "clientAuth" });
  sign("strange", "stranger", { usage: "clientAuth" });
  [good, other, expired, asking] = await Promise.all([start("good"), start("other"), start("expired"), start("good", "yes")]);
});
after(async () => {
  await Promise.all(servers.map((server) => server.stop()));
  rmSync(folder, { recursive: true });
});

const url = ({ tls }, more = "", ca = "ours") => `rediss://127.0.0.1:${tls}?ca=${file(`${ca}.pem`)}${more}`;
const pair = (name) => `&cert=${file(`${name}.pem`)}&key=${file(`${name}.key`)}`;

for (const { name, open } of opened) {
  describe(name, { concurrency: true }, () => {
    const fails = async (url, code, message) => {
      const begin = awake();
      const error = await open(url).then(
        () => assert.fail(`${url} was opened`),
        (error) => error,
      );
      assert.equal(error.code, code, error.stack);
      assert.match(error.message, message);
      assert.ok(error.message.startsWith(url.split("?")[0]), error.message);
      assert.ok(awake() - begin < 3_500, `after ${awake() - begin} ms`);
    };
    const opens = async (url) => {
      const adapter = await open(url);
      assert.equal(await adapter.eval("return 'yes'", [], []), "yes");
      await adapter.close();
    };

    test("a server that is trusted is used, by the name that is given, and gets a certificate", async () => {
      await opens(url(good));
      await opens(url(other, "&serverName=redis.internal"));
      await opens(url(asking, pair("client")));
    });

    test("the error says which side does not trust the other", async () => {
      // Catches OpenSSL errors that do not help their reader, and the code of an unreachable server.
      await fails(url(other), "tls", /is of another name .*127\.0\.0\.1.*; connect by a name that is in it/);
      await fails(url(good, "&serverName=10.0.0.7"), "tls", /is of another name .*10\.0\.0\.7/);
      await fails(url(expired), "tls", /has expired; renew it/);
      await fails(url(good, "", "stranger"), "tls", /signed by a CA that is not trusted; give that CA's file as ca/);
      await fails(`rediss://127.0.0.1:${good.tls}`, "tls", /signed by a CA that is not trusted/);
      if (name.endsWith("node-redis 5")) {
        // Its sockets may fail twice, and nothing listens for the second error, which would end the process.
        return;
      }
      await fails(url(asking), "tls", /wants a client certificate; give cert and key/);
      await fails(url(asking, pair("strange")), "tls", /the server refused the client certificate/);
    });

    test("TLS to a plain port, and the reverse, are reported as such", async () => {
      await fails(`redis://127.0.0.1:${good.tls}`, "config", /speaks TLS, .*connect to rediss:/);
      await fails(url({ tls: good.port }), "config", /does not speak TLS, .*connect to redis:/);
    });

    test("files are checked before anything is sent", async () => {
      writeFileSync(file("none.pem"), "no certificate");
      writeFileSync(file("broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
      const nobody = { tls: 1 };
      await fails(url(nobody, "", "no-such"), "config", /the ca file .*no-such\.pem cannot be read: there is no such file/);
      await fails(url(nobody, "", "none"), "config", /none\.pem has no certificate in PEM/);
      await fails(url(nobody, "", "broken"), "config", /broken\.pem is not valid PEM/);
      const keyless = `&cert=${file("client.pem")}&key=${file("client.pem")}`;
      await fails(url(nobody, keyless), "config", /client\.pem has no private key in PEM/);
      const wrong = `&cert=${file("client.pem")}&key=${file("good.key")}`;
      await fails(url(nobody, wrong), "config", /good\.key is not the key of the client certificate file/);
    });
  });
}
