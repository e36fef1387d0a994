-- What: webhooks that got CloudEvents are switched off, with the reason.
-- Why: events are sent in the native format only now, which their receivers don't read. Enabling
--   one again sends it native events from where it was. Older programs pass this by.
-- opens-with: 1

UPDATE x_webhooks
SET enabled = 0, disabled_because = 'CloudEvents are not sent any more; enable it for native events'
WHERE format = 'cloudevents' AND enabled = 1;

UPDATE x_webhooks SET format = 'native' WHERE format = 'cloudevents';
