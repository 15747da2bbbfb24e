// A program around the official Go client of RocketMQ; python_client.py has the commands.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type command struct {
	Number     int               `json:"number"`
	Do         string            `json:"do"`
	Name       string            `json:"name"`
	Topics     []string          `json:"topics"`
	Topic      string            `json:"topic"`
	Group      string            `json:"group"`
	Answer     string            `json:"answer"`
	Expression string            `json:"expression"`
	WaitS      int               `json:"wait_s"`
	Failures   map[string]int    `json:"failures"`
	Body       string            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       string            `json:"keys"`
	Properties map[string]string `json:"properties"`
	DelayMs    int64             `json:"delay_ms"`
	End        []string          `json:"end"`
	MessageID  string            `json:"message_id"`
	InvisibleS int               `json:"invisible_s"`
}

type line map[string]any

type program struct {
	config       rmq.Config
	mutex        sync.Mutex
	changed      *sync.Cond // an answer has changed
	producers    map[string]rmq.Producer
	consumers    map[string]rmq.SimpleConsumer
	pushers      map[string]rmq.PushConsumer
	answers      map[string]string
	received     map[string]*rmq.MessageView
	transactions map[string]rmq.Transaction
}

var out sync.Mutex

func say(what line) {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(text))
}

func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if status, ok := rmq.AsErrRpcStatus(err); ok {
		return int(status.GetCode())
	}
	return -1
}

func shown(view *rmq.MessageView) line {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return line{
		"body":       string(view.GetBody()),
		"message_id": view.GetMessageId(),
		"tag":        view.GetTag(),
		"keys":       keys,
		"properties": view.GetProperties(),
		"group":      view.GetMessageGroup(),
		"attempt":    view.GetDeliveryAttempt(),
		"corrupted":  false, // the client does not say
	}
}

func (c command) message() *rmq.Message {
	message := &rmq.Message{Topic: c.Topic, Body: []byte(c.Body)}
	if c.Tag != "" {
		message.SetTag(c.Tag)
	}
	if c.Keys != "" {
		message.SetKeys(c.Keys)
	}
	for name, value := range c.Properties {
		message.AddProperty(name, value)
	}
	if c.Group != "" {
		message.SetMessageGroup(c.Group)
	}
	if c.DelayMs != 0 {
		message.SetDelayTimestamp(time.Now().Add(time.Duration(c.DelayMs) * time.Millisecond))
	}
	return message
}

func (c command) subscriptions() map[string]*rmq.FilterExpression {
	expression := c.Expression
	if expression == "" {
		expression = "*"
	}
	return map[string]*rmq.FilterExpression{c.Topic: rmq.NewFilterExpression(expression)}
}

func seconds(given, otherwise int) time.Duration {
	if given == 0 {
		given = otherwise
	}
	return time.Duration(given) * time.Second
}

func (p *program) producer(c command) error {
	if c.Answer == "" {
		c.Answer = "commit"
	}
	p.answers[c.Name] = c.Answer
	checker := &rmq.TransactionChecker{Check: func(view *rmq.MessageView) rmq.TransactionResolution {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		answer := p.answers[c.Name]
		what := shown(view)
		what["event"], what["name"], what["answer"] = "asked", c.Name, answer
		say(what)
		for answer == "hold" {
			p.changed.Wait()
			answer = p.answers[c.Name]
		}
		return map[string]rmq.TransactionResolution{"commit": rmq.COMMIT, "rollback": rmq.ROLLBACK}[answer]
	}}
	config := p.config
	producer, err := rmq.NewProducer(&config, rmq.WithTopics(c.Topics...), rmq.WithTransactionChecker(checker))
	if err != nil {
		return err
	}
	p.producers[c.Name] = producer
	return producer.Start()
}

func (p *program) simple(c command) error {
	config := p.config
	config.ConsumerGroup = c.Group
	consumer, err := rmq.NewSimpleConsumer(
		&config,
		rmq.WithSimpleAwaitDuration(seconds(c.WaitS, 5)),
		rmq.WithSimpleSubscriptionExpressions(c.subscriptions()),
	)
	if err != nil {
		return err
	}
	p.consumers[c.Name] = consumer
	return consumer.Start()
}

func (p *program) push(c command) error {
	config := p.config
	config.ConsumerGroup = c.Group
	listener := &rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
		what := shown(view)
		p.mutex.Lock()
		fails := c.Failures[string(view.GetBody())] > 0
		if fails {
			c.Failures[string(view.GetBody())]--
		}
		p.mutex.Unlock()
		what["event"], what["name"], what["fails"] = "consumed", c.Name, fails
		say(what)
		if fails {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	}}
	pusher, err := rmq.NewPushConsumer(
		&config,
		rmq.WithPushAwaitDuration(seconds(c.WaitS, 5)),
		rmq.WithPushSubscriptionExpressions(c.subscriptions()),
		rmq.WithPushMessageListener(listener),
	)
	if err != nil {
		return err
	}
	p.pushers[c.Name] = pusher
	return pusher.Start()
}

func (p *program) finish(id string, end []string) line {
	errors := []int{}
	for _, one := range end {
		if one == "commit" {
			errors = append(errors, codeOf(p.transactions[id].Commit()))
		} else {
			errors = append(errors, codeOf(p.transactions[id].RollBack()))
		}
	}
	return line{"errors": errors}
}

func (p *program) transact(c command) (line, error) {
	producer := p.producers[c.Name]
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), c.message(), transaction)
	if err != nil {
		return nil, err
	}
	id := receipts[0].MessageID
	p.transactions[id] = transaction
	done := p.finish(id, c.End)
	done["message_id"], done["transaction_id"] = id, receipts[0].TransactionId
	return done, nil
}

func (p *program) receive(c command) (line, error) {
	views, err := p.consumers[c.Name].Receive(context.Background(), 16, seconds(c.InvisibleS, 10))
	messages := []line{}
	if err != nil {
		if codeOf(err) == 40401 { // no message
			return line{"messages": messages}, nil
		}
		return nil, err
	}
	for _, view := range views {
		p.received[view.GetMessageId()] = view
		p.received[fmt.Sprintf("%s/%d", view.GetMessageId(), view.GetDeliveryAttempt())] = view
		messages = append(messages, shown(view))
	}
	return line{"messages": messages}, nil
}

func (p *program) stop(name string) error {
	if producer, ok := p.producers[name]; ok {
		return producer.GracefulStop()
	}
	if pusher, ok := p.pushers[name]; ok {
		return pusher.GracefulStop()
	}
	return p.consumers[name].GracefulStop()
}

func (p *program) obey(c command) (line, error) {
	switch c.Do {
	case "producer":
		return line{}, p.producer(c)
	case "answer":
		p.mutex.Lock()
		defer p.mutex.Unlock()
		p.answers[c.Name] = c.Answer
		p.changed.Broadcast()
		return line{}, nil
	case "simple":
		return line{}, p.simple(c)
	case "push":
		return line{}, p.push(c)
	case "send":
		receipts, err := p.producers[c.Name].Send(context.Background(), c.message())
		if err != nil {
			return nil, err
		}
		return line{"message_id": receipts[0].MessageID, "transaction_id": receipts[0].TransactionId}, nil
	case "transact":
		return p.transact(c)
	case "finish":
		return p.finish(c.MessageID, c.End), nil
	case "receive":
		return p.receive(c)
	case "ack":
		return line{}, p.consumers[c.Name].Ack(context.Background(), p.received[c.MessageID])
	case "extend":
		return line{}, p.consumers[c.Name].ChangeInvisibleDuration(p.received[c.MessageID], seconds(c.InvisibleS, 10))
	case "stop":
		return line{}, p.stop(c.Name)
	}
	return nil, fmt.Errorf("this client has no %q", c.Do)
}

func main() {
	key, secret := os.Args[2], os.Args[3]
	if key == "" {
		key, secret = "none", "none" // the client refuses empty ones
	}
	p := &program{
		config: rmq.Config{
			Endpoint:    os.Args[1],
			Credentials: &credentials.SessionCredentials{AccessKey: key, AccessSecret: secret},
		},
		producers:    map[string]rmq.Producer{},
		consumers:    map[string]rmq.SimpleConsumer{},
		pushers:      map[string]rmq.PushConsumer{},
		answers:      map[string]string{},
		received:     map[string]*rmq.MessageView{},
		transactions: map[string]rmq.Transaction{},
	}
	p.changed = sync.NewCond(&p.mutex)
	say(line{"event": "ready", "name": ""})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<24)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		done, err := p.obey(c)
		if err != nil {
			say(line{"number": c.Number, "error": err.Error(), "code": codeOf(err)})
			continue
		}
		say(line{"number": c.Number, "done": done})
	}
}
