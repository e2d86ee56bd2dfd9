// The web page in headless Chromium, by keyboard and mouse, beside a real server of the trained pair.
// The environment says where: SERVER, KEY, CHROMIUM, QUESTION (which the pair answers), and SHOTS for pictures.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const { SERVER, KEY, CHROMIUM, QUESTION, SHOTS } = process.env;
const problems = [], addresses = [];
let browser, page;

before(async () => {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] });
  const context = await browser.newContext({ colorScheme: "light", viewport: { width: 1100, height: 760 }, permissions: ["clipboard-read", "clipboard-write"] });
  context.setDefaultTimeout(20000);
  page = await context.newPage();
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (said) => said.type() === "error" && !/status of (400|401|429)|ERR_FAILED/.test(said.text()) && problems.push(said.text()));
  page.on("request", (request) => addresses.push(request.url()));
});

after(async () => browser?.close());

const answers = () => page.locator(".message.assistant");
const last = () => answers().last();
const finished = () => page.locator("#send").waitFor();

async function ask(text) {
  await page.locator("#question").fill(text);
  await page.keyboard.press("Enter");
}

async function picture(name) {
  if (SHOTS) await page.screenshot({ path: `${SHOTS}/${name}.png` });
}

// Has the next answer be these pieces instead of the model's.
async function scripted(...pieces) {
  const lines = pieces.map((delta) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`);
  const fulfil = (route) => route.fulfill({ contentType: "text/event-stream", body: `: ping\n\n${lines.join("")}data: [DONE]\n\n` });
  await page.route("**/v1/chat/completions", fulfil, { times: 1 });
}

test("the page comes under a strict policy, and asks for the key", async () => {
  const response = await page.goto(SERVER);
  const policy = response.headers()["content-security-policy"];
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe/);
  await page.getByText("The server wants an API key").first().waitFor();
  assert.equal(await page.locator("#question").evaluate((node) => node === document.activeElement), true);
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("API key").fill(KEY);
  await page.getByRole("button", { name: "Done" }).click();
  await page.locator("#model", { hasText: "tiny" }).waitFor();
  assert.equal(await page.locator("#notice").isHidden(), true);
});

test("an answer streams, its thinking folded, with its figures", async () => {
  await ask(QUESTION);
  await page.locator("#stop").waitFor();
  await finished();
  const thinking = last().locator("details.thinking");
  assert.equal(await thinking.evaluate((node) => node.open), false);
  await thinking.locator("summary").click();
  assert.ok((await thinking.locator("div").innerText()).length > 20);
  const body = await last().locator(".body").innerText();
  assert.ok(body.trim().length > 0);
  assert.doesNotMatch(body, /think>/);
  for (const place of [last().locator(".tools"), page.locator("#figures")]) {
    assert.match(await place.innerText(), /\d+ tokens · [\d.]+ tok\/s · accept length [\d.]+/);
  }
  assert.equal(await page.locator("[role=status]").innerText(), "The answer is complete.");
  await picture("light");
});

test("it can be copied, regenerated and asked otherwise", async () => {
  const first = await last().locator(".body").innerText();
  await last().locator(".tools").getByRole("button", { name: "Copy" }).click();
  const said = await page.evaluate(() => JSON.parse(localStorage["dflash-gguf.conversations"])[0].messages[1].content);
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), said);
  await last().getByRole("button", { name: "Regenerate" }).click();
  await page.locator("#stop").waitFor();
  await finished();
  assert.equal(await answers().count(), 1);
  assert.equal(await last().locator(".body").innerText(), first);
  await page.locator(".message.user").getByRole("button", { name: "Edit" }).click();
  await page.keyboard.press("End");
  await page.keyboard.type(" Say why.");
  await page.keyboard.press("Enter");
  await page.locator("#stop").waitFor();
  await finished();
  assert.equal(await page.locator(".message.user").count(), 1);
  assert.match(await page.locator(".message.user .body").innerText(), /Say why\.$/);
});

test("it can be stopped, by Escape too", async () => {
  for (const stop of [() => page.locator("#stop").click(), () => page.keyboard.press("Escape")]) {
    await page.route("**/v1/chat/completions", () => {}, { times: 1 }); // never answered
    await ask("stop me");
    await page.locator("#stop").waitFor();
    await stop();
    await finished();
    assert.equal(await last().locator(".wrong").innerText(), "Stopped.");
  }
});

test("conversations are kept, and can be left and dropped", async () => {
  const shown = await page.locator(".message").count();
  await page.reload();
  await page.locator("#model", { hasText: "tiny" }).waitFor();
  assert.equal(await page.locator(".message").count(), shown);
  await page.getByRole("button", { name: "New conversation" }).click();
  assert.equal(await page.locator(".message").count(), 0);
  await page.locator("#list .pick").first().click();
  assert.equal(await page.locator(".message").count(), shown);
  await page.locator("#list .drop").first().click();
  assert.equal(await page.locator("#list li").count(), 0);
  assert.equal(await page.evaluate(() => JSON.parse(localStorage["dflash-gguf.conversations"]).length), 0);
});

test("what a model writes is never more than text", async () => {
  const text = [
    "# Title <b>b</b>", "<i>A</i> **bold** *word* and `a < b` <script>document.title='no'</script>", "",
    "- one", "- two", "  - inner", "", "1. first", "", "> said", "", "| a | b |", "|---|---|", "| 1 | <i>2</i> |", "",
    "```js\nlet a = '</code><img src=x onerror=alert(1)>';\n```", "",
    "[good](https://example.org/) [bad](javascript:alert(1)) <img src=x onerror=alert(1)>",
  ].join("\n");
  await scripted({ role: "assistant" }, { reasoning_content: "<b>hm</b>" }, { content: text.slice(0, 300) }, { content: text.slice(300) });
  await ask("draw <b>this</b>");
  await finished();
  const body = last().locator(".body");
  await body.locator("figure.code").waitFor();
  assert.equal(await page.locator(".message").locator("img, script, b, i, iframe").count(), 0);
  assert.equal(await page.title(), "dflash-gguf");
  assert.deepEqual(await body.locator("a").evaluateAll((all) => all.map((a) => [a.href, a.rel])), [["https://example.org/", "noopener noreferrer"]]);
  assert.match(await body.innerText(), /\[bad\]\(javascript:alert\(1\)\) <img src=x/);
  for (const [found, count] of [["strong", 1], ["em", 1], ["ul", 2], ["ol", 1], ["blockquote", 1], ["td", 2], ["h1", 1]]) {
    assert.equal(await body.locator(found).count(), count, found);
  }
  await body.locator("figure.code button").click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "let a = '</code><img src=x onerror=alert(1)>';");
});

test("what goes wrong is said in words", async () => {
  const refuse = (status) => (route) => route.fulfill({ status, json: { error: { message: "m" } } });
  const cases = [
    [refuse(429), /busy/], [(route) => route.abort(), /cannot be reached/], [refuse(400), /refused: m/],
    [(route) => route.fulfill({ contentType: "text/event-stream", body: 'data: {"choices":[]}\n\n' }), /went away/],
    [(route) => route.fulfill({ contentType: "text/event-stream", body: 'data: {"error":{"message":"m","code":"stopping"}}\n\n' }), /not ready/],
  ];
  for (const [act, words] of cases) {
    await page.route("**/v1/chat/completions", act, { times: 1 });
    await ask("x");
    await finished();
    assert.match(await last().locator(".wrong").innerText(), words);
  }
});

test("settings go with the question, Shift-Enter makes lines", async () => {
  await page.getByRole("button", { name: "New conversation" }).click();
  await page.getByRole("button", { name: "Settings" }).click();
  await picture("settings");
  await page.getByLabel("System prompt").fill("be brief");
  await page.getByLabel("Temperature").fill("0.5");
  await page.getByLabel("Thinking").selectOption("off");
  await page.getByRole("button", { name: "Done" }).click();
  await scripted({ content: "yes" });
  const sent = page.waitForRequest("**/v1/chat/completions");
  await page.locator("#question").focus();
  await page.keyboard.type("a");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("b");
  await page.keyboard.press("Enter");
  const body = (await sent).postDataJSON();
  assert.deepEqual(body.messages, [{ role: "system", content: "be brief" }, { role: "user", content: "a\nb" }]);
  assert.equal(body.temperature, 0.5);
  assert.equal("top_p" in body, false);
  assert.deepEqual(body.chat_template_kwargs, { enable_thinking: false });
  assert.equal((await sent).headers().authorization, `Bearer ${KEY}`);
  await finished();
});

test("dark and light follow the system until one is chosen", async () => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await ground();
  assert.notEqual(light, dark);
  await picture("dark");
  await page.getByRole("button", { name: "Dark or light" }).click();
  assert.equal(await ground(), light);
  await page.reload();
  assert.equal(await ground(), light);
  await page.getByRole("button", { name: "Dark or light" }).click();
  assert.equal(await ground(), dark);
});

test("it fits a phone", async () => {
  await page.setViewportSize({ width: 340, height: 640 });
  await scripted({ content: "```\n" + "x".repeat(400) + "\n```\n" + "y".repeat(400) });
  await ask("z".repeat(300));
  await finished();
  assert.ok((await page.evaluate(() => document.scrollingElement.scrollWidth)) <= 340);
  await picture("narrow");
  const menu = page.getByRole("button", { name: "Conversations" });
  assert.equal(await page.locator("#list .pick").first().isVisible(), false);
  await menu.click();
  assert.equal(await menu.getAttribute("aria-expanded"), "true");
  await page.locator("#list .pick").first().waitFor();
  await picture("narrow-list");
  await page.keyboard.press("Escape");
  assert.equal(await menu.getAttribute("aria-expanded"), "false");
});

test("nothing was asked of others, and nothing went wrong unseen", () => {
  assert.deepEqual(addresses.filter((address) => !address.startsWith(SERVER) && !address.startsWith("data:")), []);
  assert.deepEqual(problems, []);
});
