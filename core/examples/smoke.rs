use rowclaim::blocking::{Engine, WorkRequest, Handled}; use rowclaim::{ClaimRequest, NewJob, Outcome, PruneRequest, Result}; use std::time::*;
fn main() -> Result<()> {
    let dsn = std::env::args().nth(1).unwrap();
    let e = Engine::connect(&dsn)?; println!("{} {:?}", e.server_version()?, e.migrate()?);
    let c = e.create(&NewJob::new("q", r#"{"a": 1.0}"#).key("k1"))?; println!("{c:?} {:?}", e.create(&NewJob::new("q", "1").key("k1"))?);
    let many: Vec<_> = (0..1000).map(|i| NewJob::new("q", format!("{i}")).key(format!("m{i}"))).collect();
    let t = Instant::now(); let a = e.create_many(&many)?; println!("{} created in {:?}", a.iter().filter(|c| !c.exists).count(), t.elapsed());
    let again = e.create_many(&many)?; assert!(again.iter().all(|c| c.exists)); assert_eq!(again[5].id, a[5].id);
    let cl = e.claim(&ClaimRequest::new("q").limit(10))?; println!("{} {:?} valid {:?}", cl.len(), cl.token(), cl.valid_for());
    let j = cl.next_job()?.unwrap(); println!("{} {} {}", j.id, j.payload, j.fence); println!("{:?} {:?}", j.complete()?, j.complete()?);
    let j = cl.next_job()?.unwrap(); println!("{:?} {:?} {:?}", j.fail("boom", None)?, j.fail("boom", None)?, j.complete()?);
    drop(j); drop(cl);
    let t = Instant::now(); let mut req = WorkRequest::new(ClaimRequest::new("q")); req.until_empty = true;
    let s = e.work(&req, |_| Handled::As(Outcome::Complete))?; println!("{s:?} {:?}", t.elapsed());
    println!("{:?}", e.stats(true)?);
    let cl = e.claim(&ClaimRequest::new("q").limit(10).lease(Duration::from_secs(1)))?; println!("{}", cl.len());
    println!("{:?} {:?}", e.recover()?, e.prune(PruneRequest::new(Duration::ZERO), |_| ())?);
    e.close(Duration::from_secs(2))
}
