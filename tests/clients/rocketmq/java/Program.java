import java.io.BufferedReader;
import java.io.Closeable;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.GsonBuilder;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/** A program around the official Java client of RocketMQ; python_client.py has the commands. */
public final class Program {
  private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

  private final ClientServiceProvider provider = ClientServiceProvider.loadService();
  private final ClientConfiguration configuration;
  private final Map<String, Closeable> clients = new ConcurrentHashMap<>();
  private final Map<String, String> answers = new ConcurrentHashMap<>();
  private final Map<String, MessageView> received = new ConcurrentHashMap<>();
  private final Map<String, Transaction> transactions = new ConcurrentHashMap<>();

  private Program(String endpoints, String key, String secret) {
    ClientConfigurationBuilder builder =
        new ClientConfigurationBuilder()
            .setEndpoints(endpoints)
            .enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(30));
    if (!key.isEmpty()) {
      builder.setCredentialProvider(new StaticSessionCredentialsProvider(key, secret));
    }
    configuration = builder.build();
  }

  public static void main(String[] arguments) throws Exception {
    Program program = new Program(arguments[0], arguments[1], arguments[2]);
    say(Map.of("event", "ready", "name", ""));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      JsonObject command = new GsonBuilder().create().fromJson(line, JsonObject.class);
      Thread thread = new Thread(() -> program.obey(command));
      thread.setDaemon(true);
      thread.start();
    }
    Runtime.getRuntime().halt(0);
  }

  private static synchronized void say(Map<String, ?> line) {
    System.out.println(new GsonBuilder().serializeNulls().create().toJson(line));
    System.out.flush();
  }

  private void obey(JsonObject command) {
    int number = command.get("number").getAsInt();
    try {
      say(Map.of("number", number, "done", done(command)));
    } catch (Throwable error) {
      say(Map.of("number", number, "error", String.valueOf(error), "code", codeOf(error)));
    }
  }

  private Map<String, ?> done(JsonObject command) throws Exception {
    String name = text(command, "name", "");
    switch (command.get("do").getAsString()) {
      case "producer":
        return producer(name, command);
      case "answer":
        synchronized (answers) {
          answers.put(name, text(command, "answer", ""));
          answers.notifyAll();
        }
        return Map.of();
      case "send":
        SendReceipt sent = ((Producer) clients.get(name)).send(message(command));
        Map<String, String> receipt = new HashMap<>();
        receipt.put("message_id", sent.getMessageId().toString());
        receipt.put("recall_handle", sent.getRecallHandle());
        return receipt;
      case "recall":
        Producer producer = (Producer) clients.get(name);
        return Map.of(
            "message_id",
            producer.recallMessage(text(command, "topic", ""), text(command, "handle", "")).getMessageId().toString());
      case "transact":
        return transact(name, command);
      case "finish":
        return Map.of("errors", finish(text(command, "message_id", ""), command));
      case "simple":
        return simple(name, command);
      case "push":
        return push(name, command);
      case "receive":
        return receive(name, command);
      case "ack":
        ((SimpleConsumer) clients.get(name)).ack(received.get(text(command, "message_id", "")));
        return Map.of();
      case "extend":
        ((SimpleConsumer) clients.get(name))
            .changeInvisibleDuration(
                received.get(text(command, "message_id", "")),
                Duration.ofSeconds(command.get("invisible_s").getAsInt()));
        return Map.of();
      case "stop":
        clients.remove(name).close();
        return Map.of();
      default:
        throw new IllegalArgumentException(command.toString());
    }
  }

  private Map<String, ?> producer(String name, JsonObject command) throws Exception {
    answers.put(name, text(command, "answer", "commit"));
    List<String> topics = new ArrayList<>();
    command.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
    clients.put(
        name,
        provider
            .newProducerBuilder()
            .setClientConfiguration(configuration)
            .setTopics(topics.toArray(new String[0]))
            .setTransactionChecker(
                view -> {
                  String answer = answers.get(name);
                  Map<String, Object> line = shown(view);
                  line.putAll(Map.of("event", "asked", "name", name, "answer", answer));
                  say(line);
                  return TransactionResolution.valueOf(otherThanHold(name).toUpperCase());
                })
            .build());
    return Map.of();
  }

  /** Waits while the answer is "hold". */
  private String otherThanHold(String name) {
    synchronized (answers) {
      try {
        while (answers.get(name).equals("hold")) {
          answers.wait();
        }
      } catch (InterruptedException error) {
        throw new IllegalStateException(error);
      }
      return answers.get(name);
    }
  }

  private Map<String, ?> transact(String name, JsonObject command) throws Exception {
    Producer producer = (Producer) clients.get(name);
    Transaction transaction = producer.beginTransaction();
    String id = producer.send(message(command), transaction).getMessageId().toString();
    transactions.put(id, transaction);
    return Map.of("message_id", id, "errors", finish(id, command));
  }

  private List<Integer> finish(String id, JsonObject command) {
    List<Integer> errors = new ArrayList<>();
    for (JsonElement one : command.getAsJsonArray("end")) {
      try {
        if (one.getAsString().equals("commit")) {
          transactions.get(id).commit();
        } else {
          transactions.get(id).rollback();
        }
        errors.add(0);
      } catch (Exception error) {
        errors.add(codeOf(error));
      }
    }
    return errors;
  }

  private Map<String, ?> simple(String name, JsonObject command) throws Exception {
    clients.put(
        name,
        provider
            .newSimpleConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(text(command, "group", ""))
            .setSubscriptionExpressions(subscriptions(command))
            .setAwaitDuration(Duration.ofSeconds(Integer.parseInt(text(command, "wait_s", "5"))))
            .build());
    return Map.of();
  }

  private Map<String, ?> push(String name, JsonObject command) throws Exception {
    Map<String, Integer> failures = new ConcurrentHashMap<>();
    if (command.has("failures")) {
      command.getAsJsonObject("failures").entrySet().forEach(one -> failures.put(one.getKey(), one.getValue().getAsInt()));
    }
    clients.put(
        name,
        provider
            .newPushConsumerBuilder()
            .setClientConfiguration(configuration)
            .setConsumerGroup(text(command, "group", ""))
            .setSubscriptionExpressions(subscriptions(command))
            .setMessageListener(
                view -> {
                  Map<String, Object> line = shown(view);
                  String body = (String) line.get("body");
                  boolean fails = failures.getOrDefault(body, 0) > 0;
                  if (fails) {
                    failures.merge(body, -1, Integer::sum);
                  }
                  line.putAll(Map.of("event", "consumed", "name", name, "fails", fails));
                  say(line);
                  return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                })
            .build());
    return Map.of();
  }

  private Map<String, ?> receive(String name, JsonObject command) throws Exception {
    Duration invisible = Duration.ofSeconds(Integer.parseInt(text(command, "invisible_s", "10")));
    List<Map<String, Object>> messages = new ArrayList<>();
    for (MessageView view : ((SimpleConsumer) clients.get(name)).receive(16, invisible)) {
      received.put(view.getMessageId().toString(), view);
      received.put(view.getMessageId() + "/" + view.getDeliveryAttempt(), view);
      messages.add(shown(view));
    }
    return Map.of("messages", messages);
  }

  private Message message(JsonObject command) {
    MessageBuilder builder =
        provider
            .newMessageBuilder()
            .setTopic(text(command, "topic", ""))
            .setBody(text(command, "body", "").getBytes(StandardCharsets.UTF_8));
    if (command.has("tag")) {
      builder.setTag(text(command, "tag", ""));
    }
    if (command.has("keys")) {
      builder.setKeys(text(command, "keys", ""));
    }
    if (command.has("properties")) {
      command.getAsJsonObject("properties").entrySet().forEach(one -> builder.addProperty(one.getKey(), one.getValue().getAsString()));
    }
    if (command.has("group")) {
      builder.setMessageGroup(text(command, "group", ""));
    }
    if (command.has("delay_ms")) {
      builder.setDeliveryTimestamp(System.currentTimeMillis() + command.get("delay_ms").getAsLong());
    }
    return builder.build();
  }

  private static Map<String, FilterExpression> subscriptions(JsonObject command) {
    return Collections.singletonMap(text(command, "topic", ""), new FilterExpression(text(command, "expression", "*")));
  }

  private static Map<String, Object> shown(MessageView view) {
    Map<String, Object> line = new HashMap<>();
    line.put("body", StandardCharsets.UTF_8.decode(view.getBody()).toString());
    line.put("message_id", view.getMessageId().toString());
    line.put("tag", view.getTag().orElse(null));
    line.put("keys", new TreeSet<>(view.getKeys()));
    line.put("properties", view.getProperties());
    line.put("group", view.getMessageGroup().orElse(null));
    line.put("attempt", view.getDeliveryAttempt());
    line.put("corrupted", false); // the client hands out none that is
    return line;
  }

  private static String text(JsonObject command, String name, String otherwise) {
    return command.has(name) ? command.get(name).getAsString() : otherwise;
  }

  private static int codeOf(Throwable error) {
    Matcher found = CODE.matcher(String.valueOf(error));
    return found.find() ? Integer.parseInt(found.group(1)) : -1;
  }
}
