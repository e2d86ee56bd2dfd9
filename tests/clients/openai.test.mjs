// The official npm client: chat, stream, tools, schemas, errors. The environment says where: SERVER, QUESTION.

import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const { SERVER, QUESTION } = process.env;
const client = new OpenAI({ baseURL: `${SERVER}/v1`, apiKey: "none", maxRetries: 0, timeout: 60000 });
const asked = { model: "tiny", messages: [{ role: "user", content: QUESTION }] };
const tool = { type: "function", function: { name: "pick", parameters: { type: "object", properties: { n: { enum: [1, 2] } }, required: ["n"] } } };

async function read(more = {}) {
  let content = "", thought = "", finish = null, usage = null;
  for await (const piece of await client.chat.completions.create({ ...asked, ...more, stream: true, stream_options: { include_usage: true } })) {
    const choice = piece.choices[0];
    content += choice?.delta.content ?? "";
    thought += choice?.delta.reasoning_content ?? "";
    finish = choice?.finish_reason ?? finish;
    usage = piece.usage ?? usage;
  }
  return { content, thought, finish, usage };
}

test("an answer, and the same in a stream", async () => {
  const whole = await client.chat.completions.create(asked);
  const [{ message, finish_reason }] = whole.choices;
  assert.equal(finish_reason, "stop");
  assert.ok(message.content && message.reasoning_content);
  const streamed = await read();
  assert.deepEqual([streamed.content, streamed.thought, streamed.finish], [message.content, message.reasoning_content, "stop"]);
  assert.equal(streamed.usage.completion_tokens, whole.usage.completion_tokens);
});

test("four streams at once", async () => {
  const alone = await read({ max_tokens: 40 });
  for (const each of await Promise.all([1, 2, 3, 4].map(() => read({ max_tokens: 40 })))) assert.equal(each.thought, alone.thought);
});

test("a tool is called", async () => {
  const { choices } = await client.chat.completions.create({ ...asked, tools: [tool], tool_choice: "required", parallel_tool_calls: false });
  const [call] = choices[0].message.tool_calls;
  assert.equal(choices[0].finish_reason, "tool_calls");
  assert.ok([1, 2].includes(JSON.parse(call.function.arguments).n));
  const runner = client.chat.completions.stream({ ...asked, tools: [tool], tool_choice: "required", parallel_tool_calls: false });
  assert.equal((await runner.finalChatCompletion()).choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
});

test("a schema is kept to", async () => {
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false };
  const { choices } = await client.chat.completions.create({ ...asked, response_format: { type: "json_schema", json_schema: { name: "n", schema, strict: true } } });
  assert.equal(typeof JSON.parse(choices[0].message.content).ok, "boolean");
});

test("errors have their types, and a stream can be left", async () => {
  await assert.rejects(client.chat.completions.create({ ...asked, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("no"), OpenAI.NotFoundError);
  const stream = await client.chat.completions.create({ ...asked, stream: true });
  for await (const piece of stream) if (piece.choices.length) break;
  assert.equal((await client.models.list()).data.length, 1);
});
