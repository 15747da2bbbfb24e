// A program around the official Node.js client of RocketMQ; python_client.py has the commands.
'use strict';

const readline = require('node:readline');
const { createRequire } = require('node:module');

// The client is installed beside the tests, not in them.
const from = createRequire(`${process.env.ROCKETMQ_NODE}/`);
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = from('rocketmq-client-nodejs');
const { TransactionResolution } = from('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const RESOLUTIONS = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};
const [endpoints, accessKey, accessSecret] = process.argv.slice(2);
const quiet = { debug() {}, info() {}, warn() {}, error: (...what) => console.error(...what) };
const common = {
  endpoints,
  namespace: '',
  logger: quiet,
  requestTimeout: 30_000,
  ...(accessKey ? { sessionCredentials: { accessKey, accessSecret } } : {}),
};
const clients = {};
const answers = {};
const held = {};
const received = {};
const transactions = {};

const say = line => process.stdout.write(`${JSON.stringify(line)}\n`);

const shown = message => ({
  body: message.body.toString(),
  message_id: message.messageId,
  tag: message.tag || null,
  keys: [...message.keys].sort(),
  properties: Object.fromEntries(message.properties),
  group: message.messageGroup || null,
  attempt: message.deliveryAttempt,
  corrupted: Boolean(message.corrupted),
});

const messageOf = ({ topic, body, tag, keys, properties, group, delay_ms: delay }) => ({
  topic,
  body: Buffer.from(body),
  ...(tag ? { tag } : {}),
  ...(keys ? { keys: [keys] } : {}),
  ...(properties ? { properties: new Map(Object.entries(properties)) } : {}),
  ...(group ? { messageGroup: group } : {}),
  ...(delay ? { deliveryTimestamp: new Date(Date.now() + delay) } : {}),
});

const commands = {
  async producer({ name, topics, answer = 'commit' }) {
    answers[name] = answer;
    const checker = {
      async check(message) {
        say({ event: 'asked', name, answer: answers[name], ...shown(message) });
        while (answers[name] === 'hold') await new Promise(resolve => (held[name] ??= []).push(resolve));
        return RESOLUTIONS[answers[name]];
      },
    };
    clients[name] = new Producer({ ...common, topics, checker });
    await clients[name].startup();
  },
  async answer({ name, answer }) {
    answers[name] = answer;
    for (const release of (held[name] ?? []).splice(0)) release();
  },
  async simple({ name, group, topic, expression = '*', wait_s: wait = 5 }) {
    const subscriptions = new Map([[topic, new FilterExpression(expression)]]);
    clients[name] = new SimpleConsumer({ ...common, consumerGroup: group, subscriptions, awaitDuration: wait * 1000 });
    await clients[name].startup();
  },
  async push({ name, group, topic, expression = '*', failures = {} }) {
    const messageListener = {
      async consume(message) {
        const body = message.body.toString();
        const fails = (failures[body] ?? 0) > 0;
        if (fails) failures[body] -= 1;
        say({ event: 'consumed', name, fails, ...shown(message) });
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    };
    const subscriptions = new Map([[topic, new FilterExpression(expression)]]);
    clients[name] = new PushConsumer({ ...common, consumerGroup: group, subscriptions, messageListener });
    await clients[name].startup();
  },
  async send({ name, ...what }) {
    const receipt = await clients[name].send(messageOf(what));
    return { message_id: receipt.messageId, recall_handle: receipt.recallHandle };
  },
  async recall({ name, topic, handle }) {
    return { message_id: (await clients[name].recallMessage(topic, handle)).messageId };
  },
  async transact({ name, end, ...what }) {
    const transaction = clients[name].beginTransaction();
    const receipt = await clients[name].send(messageOf(what), transaction);
    transactions[receipt.messageId] = transaction;
    const ended = await commands.finish({ message_id: receipt.messageId, end });
    return { message_id: receipt.messageId, transaction_id: receipt.transactionId, ...ended };
  },
  async finish({ message_id: id, end }) {
    const errors = [];
    for (const one of end) {
      try {
        await transactions[id][one]();
        errors.push(0);
      } catch (error) {
        errors.push(error.code ?? -1);
      }
    }
    return { errors };
  },
  async receive({ name, limit = 16, invisible_s: invisible = 10 }) {
    const found = await clients[name].receive(limit, invisible * 1000);
    for (const message of found) {
      received[message.messageId] = message;
      received[`${message.messageId}/${message.deliveryAttempt}`] = message;
    }
    return { messages: found.map(shown) };
  },
  async ack({ name, message_id: id }) {
    await clients[name].ack(received[id]);
  },
  async extend({ name, message_id: id, invisible_s: invisible }) {
    await clients[name].changeInvisibleDuration(received[id], invisible * 1000);
  },
  async stop({ name }) {
    await clients[name].shutdown();
    delete clients[name];
  },
};

const obey = async ({ number, do: what, ...fields }) => {
  try {
    say({ number, done: (await commands[what](fields)) ?? {} });
  } catch (error) {
    say({ number, error: String(error), code: Number.isInteger(error.code) ? error.code : -1 });
  }
};

const lines = readline.createInterface({ input: process.stdin });
lines.on('line', line => obey(JSON.parse(line)));
lines.on('close', () => process.exit(0));
say({ event: 'ready', name: '' });
